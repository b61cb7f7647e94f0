// Runs the public ONNX backend suite: imports, runs and compares every test in each mode of modes.h.
//
//   onnx_backend DATA [--engine MODE,...] [--list] [--table] [--failures FILE] [--bound FILE]
//                [--one-shape FILE] [--seconds FILE] [--jobs N] [--tests-per-process N] [--optimize N]
//                [--kernels-per-object N] [--as-given] [--sample N] [name...]
//
//   DATA                    folder with node/, simple/, light/, pytorch-*/
//   --engine MODE,...       interpreter (default), compiled, dynamic, constant; on this machine's GPU: cuda,
//                           cuda-dynamic; with emulated GPU kernels: emulated, emulated-dynamic
//   --list                  print the tests that fail, with the reason
//   --table                 print the number of passed tests per operator
//   --failures FILE         write mode, name and reason of failures, separated by tabs
//   --bound FILE            write the tests that pass only with some inputs as constants: which inputs, and
//                           the reason of the failure without
//   --one-shape FILE        write the tests of `dynamic` that only ran at the test's sizes, with the reason
//   --seconds FILE          write the processor time of each test's longest compilation
//   --optimize N            LLVM optimisation level, 0 to 3 (default 3)
//   --kernels-per-object N  kernels compiled together, which takes less time (default 1)
//   --sample N              one test in N of each mode, chosen by its name; the interpreter runs all but
//                           networks, which take it minutes. With STRIDEC_NIGHTLY set, everything
//   --as-given              do not retry failures with small inputs as constants
//
// A test's file `tolerance` has its relative and absolute tolerance, and optionally one relative to the
// largest magnitude of a tensor. Tests run in child processes, so that a crash or an endless loop is one
// failure. Results are written when a test ends: an interrupted run leaves the results of all earlier tests,
// which --seconds lists. The last line is "N passed, N failed".
#include <poll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "tests/conformance/modes.h"
#include "tests/support/sample.h"

namespace fs = std::filesystem;
using namespace stridec;
using namespace stridec::conformance;

namespace {

// Limits of processor time, because other processes on a busy machine affect wall time. Wall time limits
// tests that wait forever.
constexpr unsigned kSeconds = 120, kNetworkSeconds = 900, kPatience = 20;

struct Task {
  const Test* test;
  const ModeInfo* mode;
  Outcome outcome;
};

// A child process that runs tasks in sequence. For each task it prints four lines: why it ran at one shape
// only, seconds, which inputs were bound, the reason of a failure.
struct Child {
  std::vector<size_t> tasks;  // the running task and those after it
  pid_t pid;
  int from;
  std::string said;
};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool is_network(const Test& test) { return test.name.starts_with("real/"); }

// A large network of light/ on the interpreter. Networks are not emulated, which would take too long.
bool is_long(const Task& task) { return task.mode->mode == Mode::kInterpreter && is_network(*task.test); }
bool in_sample(const Task& task, size_t one_in) {
  if (one_in == 1 || std::getenv("STRIDEC_NIGHTLY")) return true;
  if (task.mode->mode == Mode::kInterpreter) return !is_long(task);
  return stridec::test::is_one_in(cat(task.mode->name, task.test->name), one_in);
}
unsigned seconds_for(const Task& task) { return is_long(task) ? kNetworkSeconds : kSeconds; }

Child start(const std::vector<Task>& tasks, std::vector<size_t> mine, const RunOptions& options) {
  int ends[2];
  if (pipe(ends) != 0) fail(ErrorKind::kInternal, "pipe", "there are no more pipes");
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    for (const size_t index : mine) {
      const unsigned seconds = seconds_for(tasks[index]);
      const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
      setitimer(ITIMER_PROF, &limit, nullptr);
      alarm(kPatience * seconds);
      const Outcome out = run(*tasks[index].test, *tasks[index].mode, options);
      const std::string lines = cat(one_line(out.one_shape), "\n", out.seconds, "\n", one_line(out.bound),
                                    "\n", one_line(out.reason), "\n");
      if (write(ends[1], lines.data(), lines.size()) < 0) break;
    }
    _exit(0);
  }
  close(ends[1]);
  return {.tasks = std::move(mine), .pid = pid, .from = ends[0], .said = {}};
}

// The running task's outcome, if its output is complete; the next task then runs.
std::optional<Outcome> next_outcome(Child& child) {
  constexpr int kLines = 4;
  if (std::count(child.said.begin(), child.said.end(), '\n') < kLines) return std::nullopt;
  std::istringstream said(child.said);
  Outcome out;
  std::string seconds;
  std::getline(said, out.one_shape);
  std::getline(said, seconds);
  std::getline(said, out.bound);
  std::getline(said, out.reason);
  out.seconds = std::stod(seconds);
  child.said.erase(0, static_cast<size_t>(said.tellg()));
  child.tasks.erase(child.tasks.begin());
  return out;
}

int wait_for(const Child& child) {
  int status = 0;
  close(child.from);
  waitpid(child.pid, &status, 0);
  return status;
}

// Why a process that ended with `status` has no result for the task.
std::string end_of(const Task& task, int status) {
  if (!WIFSIGNALED(status)) return "no result";
  switch (WTERMSIG(status)) {
    case SIGPROF: return cat("more than ", seconds_for(task), " s of processor time");
    case SIGALRM: return cat("more than ", kPatience * seconds_for(task), " s");
    default: return cat("signal ", WTERMSIG(status));
  }
}

// Writes results to the files immediately, in the order in which tasks end.
struct Report {
  bool list = false;  // failures on stdout as well
  std::ofstream failures, bound, one_shape, seconds;

  void add(const Task& task) {
    const Outcome& outcome = task.outcome;
    const auto say = [&](std::ofstream& file, const auto& what) {
      if (file.is_open()) file << task.mode->name << "\t" << task.test->name << "\t" << what << std::endl;
    };
    say(seconds, outcome.seconds);
    if (!outcome.reason.empty()) {
      say(failures, outcome.reason);
      if (list) std::cout << task.mode->name << " " << task.test->name << ": " << outcome.reason << std::endl;
      return;
    }
    if (!outcome.bound.empty()) say(bound, outcome.bound);
    if (!outcome.one_shape.empty()) say(one_shape, outcome.one_shape);
  }
};

// Reads the child's output; false once the child has ended.
bool listen(Child& child, std::vector<Task>& tasks, Report& report) {
  char buffer[4096];
  const ssize_t n = read(child.from, buffer, sizeof(buffer));
  if (n > 0) child.said.append(buffer, static_cast<size_t>(n));
  while (!child.tasks.empty()) {
    const size_t running = child.tasks.front();
    std::optional<Outcome> outcome = next_outcome(child);
    if (!outcome) break;
    tasks[running].outcome = std::move(*outcome);
    report.add(tasks[running]);
  }
  return n > 0;
}

void run_all(std::vector<Task>& tasks, size_t jobs, size_t tests_per_process, const RunOptions& options,
             Report& report) {
  std::vector<Child> children;
  std::vector<std::vector<size_t>> waiting;
  for (size_t i = tasks.size(); i-- > 0;) {  // the last of the list is next
    const bool full = waiting.empty() || waiting.back().size() == tests_per_process;
    if (full) waiting.emplace_back();
    waiting.back().insert(waiting.back().begin(), i);
  }
  size_t said = 0;
  while (!waiting.empty() || !children.empty()) {
    for (; children.size() < jobs && !waiting.empty(); waiting.pop_back())
      children.push_back(start(tasks, std::move(waiting.back()), options));
    std::vector<pollfd> from;
    for (const Child& child : children) from.push_back({.fd = child.from, .events = POLLIN, .revents = 0});
    poll(from.data(), from.size(), -1);
    for (size_t i = children.size(); i-- > 0;) {
      Child& child = children[i];
      if (!from[i].revents || listen(child, tasks, report)) continue;
      const int status = wait_for(child);
      if (!child.tasks.empty()) {
        Task& last = tasks[child.tasks.front()];
        last.outcome.reason = end_of(last, status);
        report.add(last);
        child.tasks.erase(child.tasks.begin());
      }
      if (!child.tasks.empty()) waiting.push_back(std::move(child.tasks));
      children.erase(children.begin() + static_cast<ptrdiff_t>(i));
    }
    size_t ended = tasks.size();
    for (const auto& list : waiting) ended -= list.size();
    for (const Child& child : children) ended -= child.tasks.size();
    if (ended / 250 > said / 250) std::cerr << ended << " of " << tasks.size() << " have run" << std::endl;
    said = ended;
  }
}

// Prints the number of tests of each operator, and of passed tests per mode.
void print_table(const std::vector<Task>& tasks, const std::vector<const ModeInfo*>& chosen) {
  struct Row {
    size_t tests = 0;
    std::map<const ModeInfo*, size_t> passed;
  };
  std::map<std::string, Row> rows;
  std::map<const Test*, std::string> names;
  for (const Task& task : tasks) {
    auto [name, fresh] = names.try_emplace(task.test);
    if (fresh) name->second = operator_of(*task.test);
    Row& row = rows[name->second];
    row.tests += fresh;
    row.passed[task.mode] += task.outcome.reason.empty();
  }
  std::printf("%-44s %6s", "operator", "tests");
  for (const ModeInfo* mode : chosen) std::printf(" %12s", std::string(mode->name).c_str());
  std::printf("\n");
  for (const auto& [name, row] : rows) {
    std::printf("%-44s %6zu", name.c_str(), row.tests);
    for (const ModeInfo* mode : chosen) {
      const auto passed = row.passed.find(mode);  // a mode may have no tests of an operator
      std::printf(" %12zu", passed == row.passed.end() ? 0 : passed->second);
    }
    std::printf("\n");
  }
}

[[noreturn]] void usage() {
  std::cerr << "usage: onnx_backend DATA [--engine MODE,...] [--list] [--table] [--failures FILE] "
               "[--bound FILE] [--one-shape FILE] [--seconds FILE] [--jobs N] [--tests-per-process N] "
               "[--optimize N] [--kernels-per-object N] "
               "[--as-given] [--sample N] [name...]\nMODE: "
            << join(modes(), ", ", [](const ModeInfo& m) { return std::string(m.name); }) << "\n";
  std::exit(2);
}

std::vector<const ModeInfo*> parse_modes(std::string_view text) {
  std::vector<const ModeInfo*> out;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const auto found =
        std::find_if(modes().begin(), modes().end(), [&](const ModeInfo& m) { return m.name == item; });
    if (found == modes().end()) usage();
    out.push_back(&*found);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  std::vector<const ModeInfo*> chosen = {&modes()[0]};
  bool table = false;
  size_t jobs = 1, tests_per_process = 1, sample = 1;
  RunOptions options;
  Report report;
  fs::path data;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const std::string next = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--list")
      report.list = true;
    else if (arg == "--table")
      table = true;
    else if (arg == "--engine")
      chosen = parse_modes(next), ++i;
    else if (arg == "--failures")
      report.failures.open(next), ++i;
    else if (arg == "--bound")
      report.bound.open(next), ++i;
    else if (arg == "--one-shape")
      report.one_shape.open(next), ++i;
    else if (arg == "--seconds")
      report.seconds.open(next), ++i;
    else if (arg == "--jobs")
      jobs = std::max<size_t>(1, std::stoul(next)), ++i;
    else if (arg == "--tests-per-process")
      tests_per_process = std::max<size_t>(1, std::stoul(next)), ++i;
    else if (arg == "--optimize")
      options.optimize = std::clamp(std::stoi(next), 0, 3), ++i;
    else if (arg == "--kernels-per-object")
      options.kernels_per_object = std::max<size_t>(1, std::stoul(next)), ++i;
    else if (arg == "--sample")
      sample = std::max<size_t>(1, std::stoul(next)), ++i;
    else if (arg == "--as-given")
      options.bind_constants = false;
    else if (arg.starts_with("--"))
      usage();
    else if (data.empty())
      data = arg;
    else
      names.push_back(arg);
  }
  if (data.empty() || !fs::exists(data)) usage();
  std::vector<Test> tests = find_tests(data);
  if (!names.empty())
    std::erase_if(tests, [&](const Test& test) {
      return std::none_of(names.begin(), names.end(),
                          [&](const std::string& n) { return test.name.find(n) != std::string::npos; });
    });
  std::vector<Task> tasks;
  for (const bool longest : {true, false})  // start with tasks that take minutes
    for (const ModeInfo* mode : chosen)
      for (const Test& test : tests) {
        if (mode->machine == Machine::kEmulated && is_network(test)) continue;
        const Task task{&test, mode, {}};
        if (is_long(task) == longest && in_sample(task, sample)) tasks.push_back(task);
      }
  if (std::any_of(chosen.begin(), chosen.end(),
                  [](const ModeInfo* mode) { return mode->machine == Machine::kEmulated; }))
    std::cout << (builds_for_gpus() ? "emulated kernels are built by NVRTC as well\n"
                                    : "there is no NVRTC: emulated kernels are built for a CPU alone\n");
  run_all(tasks, jobs, tests_per_process, options, report);

  size_t all_passed = 0;
  for (const ModeInfo* mode : chosen) {
    size_t passed = 0, count = 0, bound = 0, one_shape = 0;
    for (const Task& task : tasks) {
      if (task.mode != mode) continue;
      ++count;
      if (!task.outcome.reason.empty()) continue;
      ++passed;
      bound += !task.outcome.bound.empty();
      one_shape += !task.outcome.one_shape.empty();
    }
    std::cout << mode->name << ": " << passed << " of " << count << " pass";
    if (bound) std::cout << ", " << bound << " of them with small inputs as constants";
    if (one_shape) std::cout << ", " << one_shape << " at one shape alone";
    std::cout << std::endl;
    all_passed += passed;
  }
  if (table) print_table(tasks, chosen);
  std::cout << all_passed << " passed, " << tasks.size() - all_passed << " failed\n";
  return all_passed == tasks.size() ? 0 : 1;
}

// Runs the public ONNX backend suite: every test folder's model on its inputs, outputs compared as the
// suite's own runner does (equal dtype and shape, numbers within rtol 1e-3 and atol 1e-7).
//
//   onnx_backend DATA_FOLDER [--engine interpreter|compiled] [--filter TEXT] [--failures FILE] [--jobs N]
//   [--at-least N]
//
// Tests run in child processes: a crash or a hang is one failed test. Prints the failures by reason and,
// last, "N passed, N failed".
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/compile.h"
#include "compiler/frontend/onnx/proto.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/loop/interpret.h"

namespace fs = std::filesystem;
using namespace stridec;

namespace {

constexpr unsigned kSecondsPerTest = 60;

struct Flags {
  fs::path data;
  std::string engine = "compiled", filter, failures;
  int jobs = 2;
  int at_least = 0;
};

struct Test {
  std::string name;
  fs::path folder;
  double rtol = 1e-3, atol = 1e-7;
};

// ---- one test ----

loop::HostTensor read_tensor(const fs::path& path) {
  const std::string bytes = read_file(path.string());
  const stridec::onnx::Tensor tensor = stridec::onnx::parse_tensor(std::as_bytes(std::span(bytes)));
  if (!tensor.dtype())
    fail(ErrorKind::kUnsupported, "dtype", "test data of type " + stridec::onnx::elem_type_name(tensor.elem_type));
  loop::HostTensor out = loop::make_tensor(*tensor.dtype(), tensor.dims);
  if (!out.bytes.empty()) std::memcpy(out.bytes.data(), tensor.bytes.data, out.bytes.size());
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + join(shape, ",", [](int64_t d) { return std::to_string(d); }) + "]";
}

// "" where they agree.
std::string difference(const loop::HostTensor& got, const loop::HostTensor& want, const Test& test) {
  if (got.dtype != want.dtype) return cat("dtype ", name(got.dtype), " instead of ", name(want.dtype));
  if (got.shape != want.shape)
    return cat("shape ", shape_text(got.shape), " instead of ", shape_text(want.shape));
  const int64_t count = loop::element_count(want);
  for (int64_t i = 0; i < count; ++i) {
    const double a = loop::get_number(got, i), b = loop::get_number(want, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    if (!(std::abs(a - b) <= test.atol + test.rtol * std::abs(b)))
      return cat("element ", i, " is ", a, " instead of ", b);
  }
  return "";
}

std::vector<fs::path> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> files;
  for (int i = 0; fs::exists(folder / cat(prefix, i, ".pb")); ++i)
    files.push_back(folder / cat(prefix, i, ".pb"));
  return files;
}

// "" where it passes.
std::string run_test(const Test& test, const std::string& engine) {
  const bool compiled = engine == "compiled";
  CompileOptions options;
  options.model = (test.folder / "model.onnx").string();
  const Compilation made = compile(options, compiled ? Stage::kSchedule : Stage::kLoops);
  for (int set = 0; fs::exists(test.folder / cat("test_data_set_", set)); ++set) {
    const fs::path folder = test.folder / cat("test_data_set_", set);
    std::vector<loop::HostTensor> inputs;
    for (const auto& file : numbered(folder, "input_")) inputs.push_back(read_tensor(file));
    const auto outputs = compiled ? codegen::cpu::run_compiled(made.variants.front().program, inputs)
                                  : loop::interpret(made.loops, inputs, {.poison = true});
    const auto expected = numbered(folder, "output_");
    if (outputs.size() != expected.size())
      return cat(outputs.size(), " outputs instead of ", expected.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const std::string why = difference(outputs[i], read_tensor(expected[i]), test); !why.empty())
        return cat("output ", i, ": ", why);
  }
  return "";
}

// ---- many tests ----

std::vector<Test> find_tests(const Flags& flags) {
  std::vector<Test> tests;
  for (const char* group : {"node", "simple", "pytorch-converted", "pytorch-operator"}) {
    if (!fs::is_directory(flags.data / group)) continue;
    for (const auto& entry : fs::directory_iterator(flags.data / group)) {
      Test test{.name = cat(group, "/", entry.path().filename().string()), .folder = entry.path()};
      if (!fs::exists(entry.path() / "model.onnx") || test.name.find(flags.filter) == std::string::npos)
        continue;
      tests.push_back(std::move(test));
    }
  }
  std::sort(tests.begin(), tests.end(), [](const Test& a, const Test& b) { return a.name < b.name; });
  return tests;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text.substr(0, 400);
}

std::string run_guarded(const Test& test, const std::string& engine) {
  try {
    return run_test(test, engine);
  } catch (const Error& error) {
    std::string text = cat(error.diagnostic.code, ": ", error.diagnostic.message);
    for (const auto& note : error.diagnostic.notes) text += " | " + note;
    return text;
  } catch (const std::exception& error) {
    return cat("exception: ", error.what());
  }
}

// A child that runs tests[first], tests[first + step], ... and reports "index<TAB>reason" lines.
struct Worker {
  pid_t pid = -1;
  FILE* from = nullptr;
  size_t next = 0;  // the test that it is at
};

Worker start_worker(const std::vector<Test>& tests, size_t first, size_t step, const std::string& engine) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    FILE* to = fdopen(ends[1], "w");
    for (size_t i = first; i < tests.size(); i += step) {
      alarm(kSecondsPerTest);
      std::fprintf(to, "%zu\t%s\n", i, one_line(run_guarded(tests[i], engine)).c_str());
      std::fflush(to);
    }
    _exit(0);
  }
  close(ends[1]);
  return {pid, fdopen(ends[0], "r"), first};
}

std::vector<std::string> run_all(const std::vector<Test>& tests, const Flags& flags) {
  std::vector<std::string> reasons(tests.size(), "not run");
  const size_t step = static_cast<size_t>(flags.jobs);
  std::vector<Worker> workers;
  for (size_t w = 0; w < step; ++w) workers.push_back(start_worker(tests, w, step, flags.engine));
  for (Worker& worker : workers) {
    while (worker.next < tests.size()) {
      char line[1024];
      if (std::fgets(line, sizeof(line), worker.from)) {
        const std::string text(line);
        const size_t tab = text.find('\t');
        const size_t index = std::stoul(text);
        reasons[index] = text.substr(tab + 1, text.size() - tab - 2);
        worker.next = index + step;
        continue;
      }
      int status = 0;
      waitpid(worker.pid, &status, 0);
      std::fclose(worker.from);
      const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      reasons[worker.next] =
          signal == SIGALRM ? cat("no end after ", kSecondsPerTest, " s") : cat("crash: signal ", signal);
      worker = start_worker(tests, worker.next + step, step, flags.engine);
    }
  }
  return reasons;
}

// Failures that begin alike count together.
std::string kind_of(const std::string& reason) {
  const size_t cut = std::min(reason.find_first_of(":'0123456789"), reason.size());
  return reason.substr(0, std::max<size_t>(cut, 5));
}

int run(const Flags& flags) {
  const auto tests = find_tests(flags);
  const auto reasons = run_all(tests, flags);
  std::map<std::string, int> kinds;
  int passed = 0;
  std::ofstream list(flags.failures.empty() ? "/dev/null" : flags.failures);
  for (size_t i = 0; i < tests.size(); ++i) {
    if (reasons[i].empty()) {
      ++passed;
      continue;
    }
    ++kinds[kind_of(reasons[i])];
    list << tests[i].name << "\t" << reasons[i] << "\n";
  }
  for (const auto& [kind, count] : kinds) std::printf("%5d  %s\n", count, kind.c_str());
  const int failed = static_cast<int>(tests.size()) - passed;
  std::printf("%d passed, %d failed\n", passed, failed);
  return passed >= flags.at_least ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (arg == "--engine")
      flags.engine = value();
    else if (arg == "--filter")
      flags.filter = value();
    else if (arg == "--failures")
      flags.failures = value();
    else if (arg == "--jobs")
      flags.jobs = std::max(1, std::atoi(value().c_str()));
    else if (arg == "--at-least")
      flags.at_least = std::atoi(value().c_str());
    else
      flags.data = arg;
  }
  if (!fs::is_directory(flags.data)) {
    std::fprintf(stderr,
                 "usage: onnx_backend DATA_FOLDER [--engine interpreter|compiled] [--filter TEXT] "
                 "[--failures FILE] [--jobs N] [--at-least N]\n");
    return 2;
  }
  return run(flags);
}

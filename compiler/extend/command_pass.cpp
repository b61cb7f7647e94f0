#include "compiler/extend/command_pass.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/extend/exchange.h"
#include "compiler/extend/plugin.h"

namespace stridec::extend {
namespace {

constexpr size_t kMostErrorText = 4000;
constexpr size_t kMostOutput = size_t{1} << 30;

[[noreturn]] void pass_error(ErrorKind kind, const UserPass& pass, const std::string& what,
                             const std::string& messages = {}) {
  std::vector<std::string> notes;
  for (size_t at = 0; at < messages.size();) {
    const size_t end = std::min(messages.find('\n', at), messages.size());
    notes.push_back(messages.substr(at, end - at));
    at = end + 1;
  }
  throw Error({.kind = kind,
               .code = "pass-failed",
               .message = cat("the pass '", pass.command, "' ", what),
               .notes = std::move(notes)});
}

// A folder of its own for each run, with the contents of constants.
class PassFolder {
 public:
  PassFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / ("stridec-pass-" + std::string(6, 'X'))).string();
    if (!mkdtemp(name.data()))
      fail(ErrorKind::kUnreadable, "no-folder",
           cat("cannot make a folder for passes: ", std::strerror(errno)));
    path_ = name;
  }
  ~PassFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  PassFolder(const PassFolder&) = delete;
  PassFolder& operator=(const PassFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      fail(ErrorKind::kUnreadable, "no-pipe", cat("cannot make a pipe: ", std::strerror(errno)));
    read = ends[0], write = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() {
    if (read >= 0) close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) close(std::exchange(write, -1));
  }
};

void set_limit(int what, uint64_t most) {
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  setrlimit(what, &limit);
}

// In the child: only functions that are safe after fork.
[[noreturn]] void become(const char* command, char* const* environment, const Pipe& in, const Pipe& out,
                         const Pipe& errors, double seconds, uint64_t memory) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(in.read, 0), dup2(out.write, 1), dup2(errors.write, 2);
  set_limit(RLIMIT_AS, memory);
  set_limit(RLIMIT_CPU, static_cast<uint64_t>(seconds) + 2);
  set_limit(RLIMIT_CORE, 0);
  signal(SIGPIPE, SIG_DFL);
  const char* const arguments[] = {"sh", "-c", command, nullptr};
  execve("/bin/sh", const_cast<char* const*>(arguments), environment);
  _exit(127);
}

struct Outcome {
  std::string output, errors;
  int status = 0;
  bool late = false, too_long = false;
};

// Feeds `text` and collects what the process writes, until it ends or the time is over.
void exchange_text(const std::string& text, Pipe& in, Pipe& out, Pipe& errors,
                   std::chrono::steady_clock::time_point end, Outcome& outcome) {
  fcntl(in.write, F_SETFL, O_NONBLOCK);
  size_t sent = 0;
  std::string block(1 << 16, '\0');
  const auto take = [&](Pipe& from, std::string& to, size_t most) {
    const ssize_t got = read(from.read, block.data(), block.size());
    if (got <= 0) return from.close_read();
    if (to.size() < most) to.append(block.data(), static_cast<size_t>(got));
  };
  while (out.read >= 0 || errors.read >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      outcome.late = true;
      return;
    }
    pollfd polled[3] = {{out.read, POLLIN, 0}, {errors.read, POLLIN, 0}, {in.write, POLLOUT, 0}};
    if (poll(polled, 3, static_cast<int>(left.count())) < 0) continue;
    if (polled[0].revents) take(out, outcome.output, kMostOutput + 1);
    if (polled[1].revents) take(errors, outcome.errors, kMostErrorText);
    if (polled[2].revents) {
      const ssize_t wrote = write(in.write, text.data() + sent, text.size() - sent);
      if (wrote > 0) sent += static_cast<size_t>(wrote);
      if ((wrote < 0 && errno != EAGAIN) || sent == text.size()) in.close_write();
    }
    if (outcome.output.size() > kMostOutput) {
      outcome.too_long = true;
      return;
    }
  }
}

Outcome run_command(const UserPass& pass, const std::string& text, const std::string& folder, double seconds,
                    uint64_t memory) {
  Pipe in, out, errors;
  const std::string variable = cat("STRIDEC_PASS_DIR=", folder);
  std::vector<char*> environment;
  for (char** each = environ; *each; ++each) environment.push_back(*each);
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  const auto old_pipe_action = signal(SIGPIPE, SIG_IGN);
  const pid_t child = fork();
  if (child == 0) become(pass.command.c_str(), environment.data(), in, out, errors, seconds, memory);
  if (child < 0) pass_error(ErrorKind::kOverBudget, pass, cat("cannot start: ", std::strerror(errno)));
  in.close_read(), out.close_write(), errors.close_write();
  Outcome outcome;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                          std::chrono::duration<double>(seconds));
  exchange_text(text, in, out, errors, end, outcome);
  // It may have closed its outputs and go on.
  while (!outcome.late && !outcome.too_long && waitpid(child, &outcome.status, WNOHANG) == 0) {
    outcome.late = std::chrono::steady_clock::now() >= end;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (outcome.late || outcome.too_long) {
    kill(-child, SIGKILL);
    while (waitpid(child, &outcome.status, 0) < 0 && errno == EINTR) {
    }
  }
  kill(-child, SIGKILL);  // what it has left running
  signal(SIGPIPE, old_pipe_action);
  return outcome;
}

void check_outcome(const UserPass& pass, const Outcome& outcome, double seconds) {
  if (outcome.late)
    pass_error(ErrorKind::kOverBudget, pass, cat("did not end within ", seconds, " seconds"), outcome.errors);
  if (outcome.too_long)
    pass_error(ErrorKind::kOverBudget, pass, cat("wrote more than ", human_bytes(kMostOutput)),
               outcome.errors);
  if (WIFSIGNALED(outcome.status))
    pass_error(
        ErrorKind::kToolchain, pass,
        cat("was ended by signal ", WTERMSIG(outcome.status), " (", strsignal(WTERMSIG(outcome.status)), ")"),
        outcome.errors);
  if (WEXITSTATUS(outcome.status) != 0)
    pass_error(ErrorKind::kToolchain, pass, cat("ended with exit code ", WEXITSTATUS(outcome.status)),
               outcome.errors);
}

}  // namespace

graph::Graph run_pass(const graph::Graph& graph, const UserPass& pass, const Extensions& limits) {
  if (pass.plugin) return run_plugin(graph, pass);
  const double seconds = limits.max_seconds > 0 ? limits.max_seconds : kPassSeconds;
  const uint64_t memory = limits.max_memory > 0 ? limits.max_memory : kPassMemory;
  const PassFolder folder;
  const Exchange exchange(graph, folder.path());
  std::filesystem::create_directory(std::filesystem::path(folder.path()) / "weights");
  for (const auto& [name, data] : exchange.contents())
    write_file(cat(folder.path(), "/weights/", name), {reinterpret_cast<const char*>(data.bytes), data.size});
  const Outcome outcome = run_command(pass, exchange.text(), folder.path(), seconds, memory);
  check_outcome(pass, outcome, seconds);
  try {
    return exchange.read(outcome.output);
  } catch (Error& error) {
    if (error.diagnostic.code == "bad-pass")
      error.diagnostic.message =
          cat("the pass '", pass.command, "'", error.diagnostic.message.substr(std::strlen("a pass")));
    throw;
  }
}

}  // namespace stridec::extend

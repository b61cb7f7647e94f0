#include "cli/budget.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <string>

#include "cli/exit_owner.h"
#include "cli/output.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

// All data that the signal handler uses, created before it is installed.
struct Message {
  std::string before, after;  // the stage is printed in between
};
Message too_slow, too_large;
int out = STDERR_FILENO;
std::atomic<int64_t> deadline = 0;  // in nanoseconds of the monotonic clock; 0: none
std::atomic<uint64_t> most_pages = 0;
int statm = -1;
char stage_name[64] = "working";

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000ll + time.tv_nsec;
}

void put(const char* text, size_t size) {
  if (write(out, text, size) >= 0 || out == STDERR_FILENO) return;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, size);
}

// Returns if main already owns the exit. Several threads may detect at the same time that a budget is
// exceeded.
void give_up(const Message& message) {
  const ExitOwner before = claim_exit(ExitOwner::kBudget);
  if (before == ExitOwner::kMain) return;
  if (before != ExitOwner::kNobody) await_end();
  remove_unfinished_files();
  put(message.before.data(), message.before.size());
  put(stage_name, strnlen(stage_name, sizeof(stage_name)));
  put(message.after.data(), message.after.size());
  _exit(static_cast<int>(ErrorKind::kOverBudget));
}

// Pages of the process itself: resident pages minus those of files.
uint64_t own_pages() {
  char text[128];
  const ssize_t size = pread(statm, text, sizeof(text) - 1, 0);
  if (size <= 0) return 0;
  uint64_t numbers[3] = {};
  size_t field = 0;
  for (ssize_t i = 0; i < size && field < 3; ++i) {
    if (text[i] >= '0' && text[i] <= '9')
      numbers[field] = numbers[field] * 10 + static_cast<uint64_t>(text[i] - '0');
    else
      ++field;
  }
  return numbers[1] - std::min(numbers[1], numbers[2]);
}

void look() {
  if (deadline != 0 && now() > deadline) give_up(too_slow);
  if (most_pages != 0 && own_pages() > most_pages) give_up(too_large);
}

void on_tick(int) {
  const int before = errno;
  look();
  errno = before;
}

// The message as print_error would print it, split where the stage is inserted.
Message message(const std::string& code, const std::string& text, const std::string& help,
                const std::string& file, const Globals& globals) {
  constexpr char kStage[] = "STAGE";
  const Diagnostic diagnostic{.kind = ErrorKind::kOverBudget,
                              .code = code,
                              .message = cat(text, " (while ", kStage, ")"),
                              .where = {.file = file},
                              .help = help};
  const std::string whole = globals.json ? error_json(diagnostic) : cat("\n", render(diagnostic));
  const size_t at = whole.find(cat("(while ", kStage)) + 7;
  return {whole.substr(0, at), whole.substr(at + sizeof(kStage) - 1)};
}

}  // namespace

uint64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

void name_stage(std::string_view stage) {
  look();  // a busy machine may delay the timer's signal
  // A signal handler may read a mixture of the old and the new text; both are printable.
  const size_t size = std::min(stage.size(), sizeof(stage_name) - 1);
  std::memcpy(stage_name, stage.data(), size);
  stage_name[size] = 0;
}

void enforce(const Budget& budget, const std::string& file, const Globals& globals) {
  if (budget.seconds <= 0 && budget.memory == 0) return;
  out = globals.json ? STDOUT_FILENO : STDERR_FILENO;
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g", budget.seconds);
  too_slow = message("over-time", cat("the work takes more than ", seconds, " s"),
                     "allow more with --max-seconds", file, globals);
  too_large =
      message("over-memory", cat("the work takes more than ", human_bytes(budget.memory), " of memory"),
              "allow more with --max-memory", file, globals);
  if (budget.seconds > 0) deadline = now() + static_cast<int64_t>(std::min(budget.seconds, 1e9) * 1e9);
  if (budget.memory > 0) {
    statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    most_pages = std::max<uint64_t>(1, budget.memory / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    // In addition to the timer: catches one large allocation that would be used at once. Memory that the
    // process has already, thread stacks, and what allocators keep are not counted.
    constexpr uint64_t kBeside = 256 << 20;
    rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) == 0) {
      const uint64_t wanted = budget.memory + std::min<uint64_t>(kBeside, UINT64_MAX - budget.memory);
      limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
      setrlimit(RLIMIT_DATA, &limit);
    }
    std::set_new_handler([] {
      give_up(too_large);
      std::set_new_handler(nullptr);
    });
  }
  struct sigaction action = {};
  action.sa_handler = on_tick;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  constexpr suseconds_t kTick = 10'000;
  const itimerval timer = {{0, kTick}, {0, kTick}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace stridec::cli

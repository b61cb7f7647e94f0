#include "cli/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/exit_owner.h"
#include "compiler/base/files.h"

namespace stridec::cli {
namespace {

std::string work;
char place[512];  // "  --> model.onnx\n", for the handler

// Async-signal-safe: only a lock-free atomic, unlink, write and _exit.
void on_signal(int) {
  const ExitOwner before = claim_exit(ExitOwner::kInterruption);
  if (before == ExitOwner::kMain) return;
  if (before != ExitOwner::kNobody) await_end();
  remove_unfinished_files();
  constexpr char kMessage[] = "\nerror[interrupted]: interrupted; no unfinished file is left\n";
  [[maybe_unused]] auto written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  written = write(STDERR_FILENO, place, strnlen(place, sizeof(place)));
  _exit(130);
}

}  // namespace

void name_work(std::string_view file) {
  work = file;
  std::snprintf(place, sizeof(place), "  --> %.*s\n", static_cast<int>(std::min<size_t>(file.size(), 500)),
                file.data());
}

std::string named_work() { return work; }

void handle_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // nohup starts programs that are to outlive their terminal with SIGHUP ignored.
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
  // These two are ignored, so that the write which causes them fails with EPIPE or EFBIG and is reported.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace stridec::cli

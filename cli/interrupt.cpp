#include "cli/interrupt.h"

#include <unistd.h>
#include <csignal>

#include "compiler/base/files.h"

namespace stridec::cli {
namespace {

// Async-signal-safe: unlink, write and _exit alone.
void on_signal(int) {
  remove_unfinished_files();
  constexpr char kMessage[] = "\nerror[interrupted]: interrupted; nothing was written\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(130);
}

}  // namespace

void handle_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // These two become errors of the write that they interrupt.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

}  // namespace stridec::cli

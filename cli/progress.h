// Reports the progress of long work on stderr: a bar on a terminal, plain lines elsewhere, JSON lines with
// --progress=json. Work that takes long without completing a stage is reported from a thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "cli/command.h"

namespace stridec::cli {

class ProgressPrinter {
 public:
  explicit ProgressPrinter(const Globals& globals);
  ~ProgressPrinter();
  ProgressPrinter(const ProgressPrinter&) = delete;

  // Callable from any thread. `total` 0: unknown. A stage ends when the next one begins.
  void update(std::string_view stage, int64_t done, int64_t total, std::string_view what);
  // Prints a completed line: "reading    bert.onnx, opset 18, ...".
  void line(std::string_view stage, std::string_view text);

 private:
  enum class Style { kNone, kBar, kPlain, kJson };
  using Clock = std::chrono::steady_clock;
  void clear_bar();
  void draw_bar();
  // Plain lines: where the stage is, if nothing was printed for a while.
  void remind();
  void watch(const std::stop_token& stop);

  Style style_;
  std::mutex mutex_;
  std::string stage_, what_;
  int64_t done_ = 0, total_ = 0;
  Clock::time_point stage_start_ = Clock::now(), last_drawn_ = Clock::now();
  std::chrono::milliseconds patience_{0};  // until the next reminder
  bool bar_drawn_ = false;
  std::condition_variable_any stopped_;
  std::jthread watcher_;
};

}  // namespace stridec::cli

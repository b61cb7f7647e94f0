// Reports the progress of long work on stderr: a bar on a terminal, plain lines elsewhere, JSON lines with
// --progress=json.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace stridec::cli {

class ProgressPrinter {
 public:
  explicit ProgressPrinter(const Globals& globals);
  ~ProgressPrinter();

  // Callable from any thread. `total` 0: unknown. A stage ends when the next one begins.
  void update(std::string_view stage, int64_t done, int64_t total, std::string_view what);
  // Prints a completed line: "reading    bert.onnx, opset 18, ...".
  void line(std::string_view stage, std::string_view text);

 private:
  enum class Style { kNone, kBar, kPlain, kJson };
  using Clock = std::chrono::steady_clock;
  void clear_bar();

  Style style_;
  std::mutex mutex_;
  std::string stage_;
  Clock::time_point stage_start_, last_drawn_;
  bool bar_drawn_ = false;
};

}  // namespace stridec::cli

#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/budget.h"

namespace stridec::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr auto kRedraw = std::chrono::milliseconds(80);

}  // namespace

ProgressPrinter::ProgressPrinter(const Globals& globals) {
  if (globals.progress == "json")
    style_ = Style::kJson;
  else if (globals.progress == "none" || globals.quiet)
    style_ = Style::kNone;
  else if (globals.progress == "plain")
    style_ = Style::kPlain;
  else
    style_ = isatty(STDERR_FILENO) ? Style::kBar : Style::kPlain;
}

ProgressPrinter::~ProgressPrinter() {
  std::lock_guard lock(mutex_);
  clear_bar();
}

void ProgressPrinter::clear_bar() {
  if (bar_drawn_) std::fprintf(stderr, "\r\033[K");
  bar_drawn_ = false;
}

void ProgressPrinter::update(std::string_view stage, int64_t done, int64_t total, std::string_view what) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const bool begins = stage != stage_;
  if (begins) {
    name_stage(stage);
    stage_ = stage;
    stage_start_ = now;
  }
  if (style_ == Style::kJson) {
    const nlohmann::ordered_json json = {{"stage", stage}, {"done", done}, {"total", total}, {"what", what}};
    std::fprintf(stderr, "%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else if (style_ == Style::kBar) {
    if (!begins && done != total && now - last_drawn_ < kRedraw) return;
    last_drawn_ = now;
    const double elapsed = std::chrono::duration<double>(now - stage_start_).count();
    std::string bar;
    const int filled =
        total > 0 ? static_cast<int>(std::min<int64_t>(kBarWidth, done * kBarWidth / total)) : 0;
    for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "\u2588" : "\u2591";
    std::string estimate;
    if (done > 0 && total > done && elapsed > 1) {
      char text[32];
      std::snprintf(text, sizeof(text), ", about %.0f s left",
                    elapsed / static_cast<double>(done) * static_cast<double>(total - done));
      estimate = text;
    }
    std::fprintf(stderr, "\r\033[K %-10.*s %s  %lld/%lld %.*s%s", static_cast<int>(stage.size()),
                 stage.data(), bar.c_str(), static_cast<long long>(done), static_cast<long long>(total),
                 static_cast<int>(std::min<size_t>(what.size(), 30)), what.data(), estimate.c_str());
    std::fflush(stderr);
    bar_drawn_ = true;
  }
}

void ProgressPrinter::line(std::string_view stage, std::string_view text) {
  std::lock_guard lock(mutex_);
  if (style_ == Style::kNone || style_ == Style::kJson) return;
  clear_bar();
  std::fprintf(stderr, " %-10.*s %.*s\n", static_cast<int>(stage.size()), stage.data(),
               static_cast<int>(text.size()), text.data());
}

}  // namespace stridec::cli

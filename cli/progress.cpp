#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/budget.h"
#include "cli/terminal.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kBarWidth = 24;
constexpr auto kRedraw = 80ms;
// Plain lines of a stage that takes long: after 2 s, and then twice as long each time.
constexpr auto kFirstReminder = 2000ms, kLastReminder = 60'000ms;

// ", about 4 s left", "" if it cannot be known yet.
std::string time_left(int64_t done, int64_t total, double elapsed) {
  if (done <= 0 || total <= done || elapsed <= 1) return "";
  char text[32];
  std::snprintf(text, sizeof(text), ", about %.0f s left",
                elapsed / static_cast<double>(done) * static_cast<double>(total - done));
  return text;
}

}  // namespace

ProgressPrinter::ProgressPrinter(const Globals& globals) {
  if (globals.progress == "json")
    style_ = Style::kJson;
  else if (globals.progress == "none" || globals.quiet)
    style_ = Style::kNone;
  else if (globals.progress == "plain")
    style_ = Style::kPlain;
  else
    style_ = can_redraw(STDERR_FILENO) ? Style::kBar : Style::kPlain;
  patience_ = kFirstReminder;
  if (style_ != Style::kBar && style_ != Style::kPlain) return;
  try {
    watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error&) {  // a limit on threads or memory: progress comes with updates alone
  }
}

ProgressPrinter::~ProgressPrinter() {
  watcher_.request_stop();
  if (watcher_.joinable()) watcher_.join();
  std::lock_guard lock(mutex_);
  clear_bar();
}

void ProgressPrinter::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    stopped_.wait_for(lock, stop, 250ms, [] { return false; });
    if (stop.stop_requested()) return;
    if (style_ == Style::kPlain) remind();
    if (style_ == Style::kBar && !stage_.empty() && Clock::now() - last_drawn_ >= 1s) draw_bar();
  }
}

void ProgressPrinter::clear_bar() {
  if (bar_drawn_) std::fprintf(stderr, "\r\033[K");
  bar_drawn_ = false;
}

void ProgressPrinter::draw_bar() {
  last_drawn_ = Clock::now();
  const double elapsed = std::chrono::duration<double>(last_drawn_ - stage_start_).count();
  std::string bar;
  const int filled =
      total_ > 0 ? static_cast<int>(std::min<int64_t>(kBarWidth, done_ * kBarWidth / total_)) : 0;
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "\u2588" : "\u2591";
  std::string text = cat(done_, "/", total_, " ", what_.substr(0, 30));
  if (elapsed > 1) text += cat("  ", static_cast<int>(elapsed), " s", time_left(done_, total_, elapsed));
  std::fprintf(stderr, "\r\033[K %-10s %s  %s", stage_.c_str(), bar.c_str(), text.c_str());
  std::fflush(stderr);
  bar_drawn_ = true;
}

void ProgressPrinter::remind() {
  const auto now = Clock::now();
  if (stage_.empty() || now - std::max(last_drawn_, stage_start_) < patience_) return;
  const double elapsed = std::chrono::duration<double>(now - stage_start_).count();
  std::string text = total_ > 1 ? cat(done_, " of ", total_, " ", what_) : what_;
  text += cat(text.empty() ? "" : ", ", static_cast<int>(elapsed), " s", time_left(done_, total_, elapsed));
  std::fprintf(stderr, " %-10s ... %s\n", stage_.c_str(), text.c_str());
  last_drawn_ = now;
  patience_ = std::min<std::chrono::milliseconds>(2 * patience_, kLastReminder);
}

void ProgressPrinter::update(std::string_view stage, int64_t done, int64_t total, std::string_view what) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const bool begins = stage != stage_;
  if (begins) {
    name_stage(stage);
    stage_ = stage;
    stage_start_ = now;
    patience_ = kFirstReminder;
  }
  done_ = done, total_ = total, what_ = what;
  if (style_ == Style::kJson) {
    const nlohmann::ordered_json json = {{"stage", stage}, {"done", done}, {"total", total}, {"what", what}};
    std::fprintf(stderr, "%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else if (style_ == Style::kBar) {
    if (!begins && done != total && now - last_drawn_ < kRedraw) return;
    draw_bar();
  }
}

void ProgressPrinter::line(std::string_view stage, std::string_view text) {
  std::lock_guard lock(mutex_);
  if (style_ == Style::kNone || style_ == Style::kJson) return;
  clear_bar();
  std::fprintf(stderr, " %-10.*s %.*s\n", static_cast<int>(stage.size()), stage.data(),
               static_cast<int>(text.size()), text.data());
  last_drawn_ = Clock::now();
}

}  // namespace stridec::cli

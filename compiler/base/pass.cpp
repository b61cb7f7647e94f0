#include "compiler/base/pass.h"

#include <algorithm>

namespace stridec {

PassRunner::PassRunner(const PassOptions& options, Tell tell) : options_(options), tell_(std::move(tell)) {}

void PassRunner::lap(std::string_view stage) { took(stage, "", &PassTime::seconds); }

bool PassRunner::wants_dump(std::string_view name) const {
  return options_.dump && std::any_of(options_.dump_after.begin(), options_.dump_after.end(),
                                      [&](const std::string& s) { return s == name || s == "all"; });
}

bool PassRunner::skips(std::string_view name) const {
  return std::find(options_.skip.begin(), options_.skip.end(), name) != options_.skip.end();
}

void PassRunner::took(std::string_view stage, std::string_view name, double PassTime::* what) {
  const Clock::time_point now = Clock::now();
  auto row = std::find_if(times_.begin(), times_.end(),
                          [&](const PassTime& t) { return t.stage == stage && t.name == name; });
  if (row == times_.end()) row = times_.insert(row, {.stage = stage, .name = name});
  (*row).*what += std::chrono::duration<double>(now - start_).count();
  row->runs += what == &PassTime::seconds;
  start_ = now;
}

}  // namespace stridec

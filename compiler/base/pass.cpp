#include "compiler/base/pass.h"

#include <algorithm>

namespace stridec {

PassRunner::PassRunner(PassOptions options, Tell tell)
    : options_(std::move(options)), tell_(std::move(tell)) {}

bool PassRunner::begin(const Pass& pass, const PassContext& context, size_t at, size_t of) {
  if (!pass.option.empty() && !context.options.flag(pass.option, true)) return false;
  ++ordinal_;
  if (tell_) tell_(pass.stage, at, of, pass.name);
  return true;
}

bool PassRunner::wants_dump(std::string_view name) const {
  return options_.dump && std::any_of(options_.dump_after.begin(), options_.dump_after.end(),
                                      [&](const std::string& s) { return s == name || s == "all"; });
}

void PassRunner::took(const Pass& pass, double PassTime::* what) {
  const Clock::time_point now = Clock::now();
  auto row = std::find_if(times_.begin(), times_.end(),
                          [&](const PassTime& t) { return t.stage == pass.stage && t.name == pass.name; });
  if (row == times_.end()) row = times_.insert(row, {.stage = pass.stage, .name = pass.name});
  (*row).*what += std::chrono::duration<double>(now - start_).count();
  row->runs += what == &PassTime::seconds;
  start_ = now;
}

}  // namespace stridec

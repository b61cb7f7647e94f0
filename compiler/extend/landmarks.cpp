#include "compiler/extend/landmarks.h"

#include <algorithm>
#include <cmath>

namespace stridec::extend {
namespace {

constexpr double kMostSize = 2048;
constexpr double kLeastLimit = 3;  // smaller sizes are drawn anyway

// `tensors`: only numbers that are operands, and none of attributes.
void collect(const Term& term, bool tensors, std::vector<double>& numbers) {
  if (term.kind == Term::Kind::kNumber) numbers.push_back(term.number);
  if (tensors && (term.kind == Term::Kind::kList || term.kind == Term::Kind::kSet)) return;
  for (const Term& arg : term.args) collect(arg, tensors, numbers);
}

}  // namespace

Landmarks landmarks_of(const Rule& rule) {
  Landmarks made{.formats = formats_of(rule), .numbers = {}, .sizes = {}};
  for (const Side* side : {&rule.match, &rule.yield})
    for (const auto* list : {&side->results, &side->locals})
      for (const Definition& each : *list) collect(each.term, true, made.numbers);
  std::vector<double> limits;
  for (const Term& each : rule.where) collect(each, false, limits);
  for (const Requirement& each : rule.require) collect(each.condition, false, limits);
  std::erase_if(limits, [](double limit) { return limit < kLeastLimit; });
  for (const double limit : limits)
    for (const double size : {limit - 1, limit, limit + 1})
      if (size <= kMostSize && size == std::floor(size))
        made.sizes.push_back(static_cast<int64_t>(size));
  return made;
}

}  // namespace stridec::extend

#include "compiler/ops/composite/lookup.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/ops/nodes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

Term find_number(Term x, std::vector<std::pair<double, int64_t>> floats,
                 std::vector<std::pair<int64_t, int64_t>> integers) {
  Builder& b = x.builder();
  std::vector<int64_t> places;
  std::optional<Term> keys;
  if (is_float(x.dtype())) {
    const auto nan = [](double v) { return std::isnan(v); };
    std::sort(floats.begin(), floats.end(), [&](const auto& l, const auto& r) {
      if (nan(l.first) || nan(r.first))
        return nan(l.first) == nan(r.first) ? l.second < r.second : nan(r.first);
      return l < r;
    });
    std::vector<double> values;
    for (const auto& [key, place] : floats) {
      values.push_back(key);
      places.push_back(place);
    }
    if (values.empty()) return filled(b, x.shape(), DType::kI64, -1);
    keys = float_table(b, values, x.dtype());
  } else {
    x = cast(x, DType::kI64);
    std::sort(integers.begin(), integers.end());
    std::vector<int64_t> values;
    for (const auto& [key, place] : integers) {
      values.push_back(key);
      places.push_back(place);
    }
    if (values.empty()) return filled(b, x.shape(), DType::kI64, -1);
    // A dense range of keys is looked up by index instead of binary search.
    const int64_t low = values.front(), high = values.back();
    constexpr int64_t kExact = int64_t{1} << 53;  // largest integer range exact in a double
    if (low > -kExact && high < kExact && high - low < 4 * static_cast<int64_t>(values.size()) + 64) {
      std::vector<int64_t> table(static_cast<size_t>(high - low + 1), -1);
      for (size_t i = values.size(); i-- > 0;) table[static_cast<size_t>(values[i] - low)] = places[i];
      const Term inside = minimum(maximum(x, static_cast<double>(low)), static_cast<double>(high));
      const Term place = gather(integer_table(b, table), inside - static_cast<double>(low), 0);
      return select(equal(inside, x), place, -1);
    }
    keys = integer_table(b, values);
  }
  const Term at = minimum(search_sorted(*keys, x), static_cast<double>(places.size() - 1));
  const Term key = gather(*keys, at, 0);
  Term same = equal(key, x);
  if (is_float(x.dtype()))
    same = logical_or(same, logical_and(apply(OpKind::kIsNan, key), apply(OpKind::kIsNan, x)));
  return select(same, gather(integer_table(b, places), at, 0), -1);
}

}  // namespace stridec::ops

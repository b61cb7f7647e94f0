#include "compiler/ops/composite/labels.h"

#include <utility>

#include "compiler/ops/composite/lookup.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

Term find_label(const TermOrStrings& x, const Labels& keys) {
  if (const auto* const strings = std::get_if<Strings>(&x)) return find_in(*strings, keys.strings);
  std::vector<std::pair<double, int64_t>> floats;
  std::vector<std::pair<int64_t, int64_t>> integers;
  for (size_t i = 0; i < keys.floats.size(); ++i)
    floats.emplace_back(keys.floats[i], static_cast<int64_t>(i));
  for (size_t i = 0; i < keys.integers.size(); ++i)
    integers.emplace_back(keys.integers[i], static_cast<int64_t>(i));
  return find_number(std::get<Term>(x), std::move(floats), std::move(integers));
}

TermOrStrings labels_at(Term place, Labels values, const Labels& otherwise) {
  Builder& b = place.builder();
  const auto last = static_cast<double>(values.size());  // where `otherwise` is appended
  const Term at = select(less(place, 0), last, place);
  values.strings.insert(values.strings.end(), otherwise.strings.begin(), otherwise.strings.end());
  values.integers.insert(values.integers.end(), otherwise.integers.begin(), otherwise.integers.end());
  values.floats.insert(values.floats.end(), otherwise.floats.begin(), otherwise.floats.end());
  if (!values.strings.empty()) {
    const Strings all = constant_strings(b, values.strings, {static_cast<int64_t>(values.strings.size())});
    return Strings{at, all.pool};
  }
  if (!values.integers.empty()) return gather(integer_table(b, values.integers, values.dtype), at, 0);
  return gather(float_table(b, values.floats, values.dtype), at, 0);
}

TermOrStrings class_labels(Term index, const Labels& labels) {
  Builder& b = index.builder();
  if (!labels.strings.empty()) {
    const Strings all = constant_strings(b, labels.strings, {static_cast<int64_t>(labels.strings.size())});
    return Strings{gather(all.index, index, 0), all.pool};
  }
  if (!labels.integers.empty()) return gather(integer_table(b, labels.integers), index, 0);
  return index;
}

Term one_hot_labels(const TermOrStrings& x, const Labels& keys, bool strict) {
  const auto* const numbers = std::get_if<Term>(&x);
  const Term place =
      find_label(numbers && is_float(numbers->dtype()) ? cast(*numbers, DType::kI64) : x, keys);
  Builder& b = place.builder();
  if (strict) {
    const Term flat = reshape(place, {count(place.shape())});
    const Term known = reduce(OpKind::kReduceAnd, greater_equal(flat, 0), {0});
    const auto all = b.elements_of(known, "all_known", 0, 1);
    b.require(sym::eq(all.at(0), 1), "a category is not in the list");
  }
  const auto n = static_cast<int64_t>(keys.size());
  const Term hit = equal(unsqueeze(place, {place.rank()}), index_along(b, {n}, 0, DType::kI64));
  return cast(hit, DType::kF32);
}

}  // namespace stridec::ops

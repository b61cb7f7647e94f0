#include "compiler/ops/composite/maps.h"

#include <algorithm>
#include <limits>

#include "compiler/ops/nodes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {
namespace {

// For each place 0, ..., `places` - 1 the index of its map entry, or -1. Entries with place `places` are
// dropped.
Term entry_at(Term place, sym::Expr places) {
  Builder& b = place.builder();
  const Term none = filled(b, {b.simplify(places + 1)}, DType::kI64, -1);
  const Term entry = index_along(b, place.shape(), 0, DType::kI64);
  return slice(scatter_elements(none, place, entry, 0), 0, 0, places);
}

// values[entry] as [1, n]; `missing` where entry is -1.
TermOrStrings take(const TermOrStrings& values, Term entry, const MissingValue& missing) {
  Builder& b = entry.builder();
  const Shape row{1, entry.dim(0)};
  if (const auto* const strings = std::get_if<Strings>(&values)) {
    const Strings taken = take_strings(*strings, entry, missing.text);
    return Strings{reshape(taken.index, row), taken.pool};
  }
  const Term v = std::get<Term>(values), all = concat({v, filled(b, {1}, v.dtype(), missing.number)}, 0);
  const Term at = select(less(entry, 0), size_as(b, DType::kI64, v.dim(0)), entry);
  return reshape(gather(all, at, 0), row);
}

// Sorts the keys and removes repeated ones. Appends the new position of each key to `positions`.
template <class Key>
void make_unique(std::vector<Key>& keys, Dims& positions) {
  auto sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (const auto& key : keys)
    positions.push_back(std::lower_bound(sorted.begin(), sorted.end(), key) - sorted.begin());
  keys = std::move(sorted);
}

}  // namespace

TermOrStrings values_of_vocabulary(const Map& map, Labels vocabulary, const MissingValue& missing) {
  Dims column;  // a repeated key gives repeated columns
  make_unique(vocabulary.strings, column);
  make_unique(vocabulary.integers, column);
  const auto n = static_cast<int64_t>(vocabulary.size());
  const Term found = find_label(map.keys, vocabulary);
  const Term place = select(less(found, 0), static_cast<double>(n), found);
  const Term entry = gather(entry_at(place, n), integer_table(place.builder(), column), 0);
  return take(map.values, entry, missing);
}

TermOrStrings values_by_key(const Map& map, const MissingValue& missing) {
  return take(map.values, sort(std::get<Term>(map.keys), 0).indices, missing);
}

TermOrStrings values_at_key(const Map& map, int64_t columns, const MissingValue& missing) {
  const Term keys = std::get<Term>(map.keys);
  Builder& b = keys.builder();
  const Term lowest = reduce_min(concat({keys, filled(b, {1}, DType::kI64, 0)}, 0), {0});
  const auto least =
      b.elements_of(reshape(lowest, {1}), "lowest_key", std::numeric_limits<int32_t>::min(), 0);
  b.require(sym::eq(least.at(0), 0), "a key of the map is negative");
  const Term entry = entry_at(minimum(keys, static_cast<double>(columns)), columns);
  return take(map.values, entry, missing);
}

}  // namespace stridec::ops

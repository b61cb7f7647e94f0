// Operators on maps. A map is a tensor of keys [n], unique and in any order, and a tensor of values [n]; n is
// known at run time.
#include <algorithm>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/term.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

struct Map {
  Slot keys, values;
};

Map map_of(const Context& c, size_t input) {
  const Slot& s = c.slot(input);
  if (s.kind != Slot::Kind::kMap) c.does_not_fit(cat("input ", input, " is not a map"));
  return {s.items.at(0), s.items.at(1)};
}

// For each place 0, ..., `places` - 1 the index of its map entry, or -1. Entries with place `places` are
// dropped.
Term entry_at(Term place, sym::Expr places) {
  Builder& b = place.builder();
  const Term none = filled(b, {b.simplify(places + 1)}, DType::kI64, -1);
  const Term entry = index_along(b, place.shape(), 0, DType::kI64);
  return slice(scatter_elements(none, place, entry, 0), 0, 0, places);
}

std::vector<std::pair<int64_t, int64_t>> numbered(const Dims& keys) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t key : keys) out.emplace_back(key, static_cast<int64_t>(out.size()));
  return out;
}

// values[entry] as [1, n]. Where entry is -1: `number`, or `text` for strings.
Slot take(Builder& b, const Slot& values, Term entry, double number, const std::string& text) {
  const Shape row{1, entry.dim(0)};
  if (values.kind == Slot::Kind::kStrings) {
    const Strings s = strings_of(b, values), missing = constant_strings(b, {text}, {1});
    const sym::Expr width = sym::max(s.pool.dim(1), missing.pool.dim(1));
    const auto widened = [&](Term pool) {
      return pad(pool, {0, 0}, {0, b.simplify(width - pool.dim(1))}, 0);
    };
    const Term pool = concat({widened(s.pool), widened(missing.pool)}, 0);
    const Term rows = concat({s.index, missing.index + size_as(b, DType::kI64, s.pool.dim(0))}, 0);
    const Term at = select(less(entry, 0), size_as(b, DType::kI64, s.index.dim(0)), entry);
    return Strings{reshape(gather(rows, at, 0), row), pool};
  }
  const Term v(b, values.tensor), all = concat({v, filled(b, {1}, v.dtype(), number)}, 0);
  const Term at = select(less(entry, 0), size_as(b, DType::kI64, v.dim(0)), entry);
  return reshape(gather(all, at, 0), row);
}

// The map's values in the order of the vocabulary; zero or empty if the map lacks a key. Keys that are not in
// the vocabulary are dropped.
Outputs dict_vectorizer(Context& c) {
  const Map map = map_of(c, 0);
  std::vector<std::string> texts = c.texts("string_vocabulary");
  Dims numbers = c.integers("int64_vocabulary");
  if (texts.empty() == numbers.empty()) c.does_not_fit("expected exactly one vocabulary");
  const bool strings = map.keys.kind == Slot::Kind::kStrings;
  if (strings == texts.empty()) c.does_not_fit("the vocabulary is of another type than the map's keys");
  // A repeated key of the vocabulary gives repeated columns.
  Dims column;
  const auto unique = [&](auto& vocabulary) {
    auto sorted = vocabulary;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (const auto& key : vocabulary)
      column.push_back(std::lower_bound(sorted.begin(), sorted.end(), key) - sorted.begin());
    vocabulary = std::move(sorted);
    return static_cast<int64_t>(vocabulary.size());
  };
  const int64_t n = strings ? unique(texts) : unique(numbers);
  const Term found = strings ? find_in(strings_of(c.b, map.keys), texts)
                             : find_number(Term(c.b, map.keys.tensor), {}, numbered(numbers));
  const Term place = select(less(found, 0), static_cast<double>(n), found);
  return {take(c.b, map.values, gather(entry_at(place, n), integer_table(c.b, column), 0), 0, "")};
}

// Values by ascending key (dense), or each at the column given by its key (sparse). Missing columns are 0, or
// the text "0.f", as in onnxruntime.
Outputs cast_map(Context& c) {
  const Map map = map_of(c, 0);
  if (map.keys.kind != Slot::Kind::kTensor) c.does_not_fit("the map's keys are not integers");
  const Term keys(c.b, map.keys.tensor);
  const std::string to = c.text("cast_to", "TO_FLOAT"), form = c.text("map_form", "DENSE");
  std::optional<Term> entry;
  if (form == "DENSE") {
    entry = Term(c.b, c.b.add(OpKind::kSort, {keys.id()}, {{"dim", int64_t{0}}})[1]);
  } else {
    const int64_t columns = c.integer("max_map", 1);
    if (form != "SPARSE" || columns < 1) c.does_not_fit(cat("map_form is '", form, "', max_map ", columns));
    const Term lowest = reduce_min(concat({keys, filled(c.b, {1}, DType::kI64, 0)}, 0), {0});
    const auto least =
        c.b.elements_of(reshape(lowest, {1}), "lowest_key", std::numeric_limits<int32_t>::min(), 0);
    c.b.require(sym::eq(least.at(0), 0), "a key of the map is negative");
    entry = entry_at(minimum(keys, static_cast<double>(columns)), columns);
  }
  const Slot taken = take(c.b, map.values, *entry, 0, "0.f");
  const bool strings = taken.kind == Slot::Kind::kStrings;
  if (to != "TO_FLOAT" && to != "TO_INT64" && to != "TO_STRING") c.does_not_fit("cast_to is '" + to + "'");
  if (strings != (to == "TO_STRING"))
    c.unsupported("CastMap between strings and numbers is not supported",
                  "convert the values before the model");
  if (strings) return {taken};
  return {cast(Term(c.b, taken.tensor), to == "TO_FLOAT" ? DType::kF32 : DType::kI64)};
}

constexpr Row kRows[] = {
    {"CastMap", cast_map, 1, kAnyLater, kMl},
    {"DictVectorizer", dict_vectorizer, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> map_rows() { return kRows; }

}  // namespace stridec::onnx

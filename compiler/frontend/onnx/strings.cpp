#include "compiler/frontend/onnx/strings.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/term.h"

namespace stridec::onnx {

using namespace ops;

namespace {

// Byte rows of length `width`.
Term byte_table(Builder& b, const std::vector<std::string>& texts, size_t width) {
  std::vector<uint8_t> bytes(texts.size() * width);
  for (size_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) std::memcpy(bytes.data() + i * width, texts[i].data(), texts[i].size());
  return {b, b.constant("", {DType::kU8, {static_cast<int64_t>(texts.size()), static_cast<int64_t>(width)}},
                        graph::own(std::move(bytes)))};
}

size_t longest(const std::vector<std::string>& texts) {
  size_t out = 0;
  for (const auto& t : texts) {
    if (t.find('\0') != std::string::npos)
      fail(ErrorKind::kUnsupported, "zero-byte", "strings with zero bytes are not supported");
    out = std::max(out, t.size());
  }
  return out;
}

}  // namespace

Strings constant_strings(Builder& b, const std::vector<std::string>& texts, Shape shape) {
  std::vector<int64_t> places(texts.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  return {reshape(integer_table(b, places), shape),
          byte_table(b, texts, std::max<size_t>(longest(texts), 1))};
}

Strings strings_of(Builder& b, const Slot& slot) {
  if (slot.kind != Slot::Kind::kStrings)
    fail(ErrorKind::kDoesNotFit, "not-strings", "expected a string tensor");
  return {Term(b, slot.tensor), Term(b, slot.pool)};
}

Strings strings_of(const Context& c, size_t input) {
  if (c.slot(input).kind != Slot::Kind::kStrings)
    c.does_not_fit(cat("input ", input, " is not a string tensor"));
  return strings_of(c.b, c.slot(input));
}

Strings from_bytes(Term bytes) {
  const Shape shape(bytes.shape().begin(), bytes.shape().end() - 1);
  const sym::Expr rows = count(shape);
  return {reshape(index_along(bytes.builder(), {rows}, 0, DType::kI64), shape),
          reshape(bytes, {rows, bytes.dim(bytes.rank() - 1)})};
}

Term to_bytes(const Strings& s) { return gather(s.pool, s.index, 0); }

Term find_in(const Strings& s, const std::vector<std::string>& keys) {
  Builder& b = s.index.builder();
  if (keys.empty()) return filled(b, s.index.shape(), DType::kI64, -1);
  // One byte more than the longest key, to distinguish longer strings from it.
  const size_t width = longest(keys) + 1;
  const auto bytes = static_cast<int64_t>(width);
  const Term padded = pad(s.pool, {0, 0}, {0, bytes}, 0), rows = slice(padded, 1, 0, bytes);

  // A polynomial hash with an odd base: the first base without collisions among the keys.
  uint64_t base = 0x9E3779B97F4A7C15u;
  std::vector<uint64_t> powers;
  std::map<uint64_t, size_t> by_hash;
  std::map<std::string, size_t> number;
  for (size_t i = 0; i < keys.size(); ++i) number[keys[i]] = i;
  do {
    base += 2;
    powers.assign(1, 1);
    while (powers.size() < width) powers.push_back(powers.back() * base);
    by_hash.clear();
    for (const auto& [key, i] : number) {
      uint64_t hash = 0;
      for (size_t k = 0; k < key.size(); ++k) hash += static_cast<uint8_t>(key[k]) * powers[k];
      by_hash[hash] = i;
    }
  } while (by_hash.size() < number.size());
  std::vector<int64_t> hashes, places;
  std::vector<std::string> texts;
  for (const auto& [hash, i] : by_hash) {
    hashes.push_back(static_cast<int64_t>(hash));
    places.push_back(static_cast<int64_t>(i));
    texts.push_back(keys[i]);
  }
  const Term weights = integer_table(b, {powers.begin(), powers.end()}, DType::kU64);
  const Term hash = reduce_sum(cast(rows, DType::kU64) * weights, {1});
  const Term place = search_sorted(integer_table(b, hashes, DType::kU64), hash);
  const Term candidate = minimum(place, static_cast<double>(hashes.size() - 1));
  const Term same =
      reduce(OpKind::kReduceAnd, equal(gather(byte_table(b, texts, width), candidate, 0), rows), {1});
  const Term found = select(same, gather(integer_table(b, places), candidate, 0), -1);
  return gather(found, s.index, 0);
}

namespace {

// `data`: bit set of the inputs that are strings of an operator that only moves elements.
struct Mover {
  std::string_view op_type;
  unsigned data;
  bool gives_strings = true;
};
constexpr unsigned kAll = ~0u;
constexpr Mover kMovers[] = {
    {"Compress", 1},
    {"Concat", kAll},
    {"Expand", 1},
    {"Flatten", 1},
    {"Gather", 1},
    {"GatherElements", 1},
    {"GatherND", 1},
    {"OneHot", 4},
    {"Reshape", 1},
    {"ReverseSequence", 1},
    {"Scatter", 5},
    {"ScatterElements", 5},
    {"ScatterND", 5},
    {"Shape", 1, false},
    {"Size", 1, false},
    {"Slice", 1},
    {"Split", 1},
    {"Squeeze", 1},
    {"Tile", 1},
    {"Transpose", 1},
    {"Unsqueeze", 1},
    {"Where", 6},
    {"SplitToSequence", 1},
    {"ArrayFeatureExtractor", 1},
};

// Merges the pools into one.
Term join_pools(std::vector<Strings>& parts) {
  bool shared = true;
  for (const Strings& s : parts) shared &= s.pool.id() == parts[0].pool.id();
  if (shared) return parts[0].pool;
  Builder& b = parts[0].pool.builder();
  sym::Expr width = 0, start = 0;
  for (const Strings& s : parts) width = b.simplify(sym::max(width, s.pool.dim(1)));
  std::vector<Term> pools;
  for (Strings& s : parts) {
    pools.push_back(pad(s.pool, {0, 0}, {0, b.simplify(width - s.pool.dim(1))}, 0));
    s.index = s.index + size_as(b, DType::kI64, start);
    start = b.simplify(start + s.pool.dim(0));
  }
  return concat(pools, 0);
}

Slot with_pool(const Slot& slot, Term pool) {
  if (slot.kind == Slot::Kind::kTensor) return Slot::strings(slot.tensor, pool);
  std::vector<Slot> items;
  for (const Slot& s : slot.items) items.push_back(with_pool(s, pool));
  return Slot::sequence(std::move(items));
}

}  // namespace

std::optional<Outputs> move_strings(Context& c) {
  if (c.node.op_type == "Equal") return equal_strings(c);
  const auto mover = std::find_if(std::begin(kMovers), std::end(kMovers),
                                  [&](const Mover& m) { return m.op_type == c.node.op_type; });
  if (mover == std::end(kMovers)) return std::nullopt;
  std::vector<Slot> inputs;
  std::vector<Strings> parts;
  for (size_t i = 0; i < c.input_count(); ++i) {
    inputs.push_back(c.has(i) ? c.slot(i) : Slot());
    if (i < 32 && mover->data != kAll && !(mover->data >> i & 1)) continue;
    if (c.has(i)) parts.push_back(strings_of(c, i));
  }
  const Term pool = join_pools(parts);
  size_t next = 0;
  for (Slot& s : inputs)
    if (s.kind == Slot::Kind::kStrings) s = next < parts.size() ? Slot(parts[next++].index) : s;
  Outputs out = c.importer().import_as(c, c.node, std::move(inputs));
  if (mover->gives_strings)
    for (Slot& s : out) s = with_pool(s, pool);
  return out;
}

Slot class_labels(const Context& c, Term index, const char* ints, const char* strings) {
  if (const auto texts = c.texts(strings); !texts.empty()) {
    const Strings all = constant_strings(c.b, texts, {static_cast<int64_t>(texts.size())});
    return Strings{gather(all.index, index, 0), all.pool};
  }
  if (const Dims labels = c.integers(ints); !labels.empty())
    return gather(integer_table(c.b, labels), index, 0);
  return index;
}

}  // namespace stridec::onnx

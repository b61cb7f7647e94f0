#include "compiler/frontend/onnx/strings.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"

namespace stridec::onnx {

using namespace ops;

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

TermOrStrings numbers_or_strings(const Context& c, size_t input) {
  if (c.slot(input).kind == Slot::Kind::kStrings) return strings_of(c, input);
  return c.in(input);
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

Slot with_pool(const Slot& slot, Term pool) {
  if (slot.kind == Slot::Kind::kTensor) return Slot::strings(slot.tensor, pool);
  std::vector<Slot> items;
  for (const Slot& s : slot.items) items.push_back(with_pool(s, pool));
  return Slot::sequence(std::move(items));
}

}  // namespace

std::optional<Outputs> move_strings(Context& c) {
  if (c.node.op_type == "Equal") {
    const Strings x = strings_of(c, 0), y = strings_of(c, 1);
    return Outputs{equal_strings(x, y)};
  }
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

Labels class_labels_of(const Context& c, const char* ints, const char* strings) {
  Labels out;
  out.strings = c.texts(strings);
  if (out.strings.empty()) out.integers = c.integers(ints);
  out.dtype = DType::kI64;
  return out;
}

}  // namespace stridec::onnx

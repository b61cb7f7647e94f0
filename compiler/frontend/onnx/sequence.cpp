// Sequences and optionals. Their length is known at compile time; only the importer represents them.
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/term.h"

namespace stridec::onnx {
namespace {

using namespace ops;

const std::vector<Slot>& items(const Context& c, size_t input) {
  const Slot& s = c.slot(input);
  if (s.kind != Slot::Kind::kSequence) c.does_not_fit(cat("input ", input, " is not a sequence"));
  return s.items;
}

// Reads a position in a sequence of `size`. With `end`, `size` itself is allowed, for insertions.
size_t position(const Context& c, size_t input, size_t size, bool end) {
  const Dims at = c.integers_of(input, "the position");
  const auto n = static_cast<int64_t>(size);
  if (at.size() != 1 || at[0] < -n || at[0] >= n + (end ? 1 : 0))
    c.does_not_fit(cat("a position is outside a sequence of ", size));
  return static_cast<size_t>(at[0] < 0 ? at[0] + n : at[0]);
}

Outputs construct(Context& c) {
  std::vector<Slot> out;
  for (size_t i = 0; i < c.input_count(); ++i) out.push_back(c.in(i));
  return {Slot::sequence(std::move(out))};
}
Outputs empty(Context&) { return {Slot::sequence({})}; }

Outputs insert(Context& c) {
  std::vector<Slot> out = items(c, 0);
  const size_t at = c.has(2) ? position(c, 2, out.size(), true) : out.size();
  out.insert(out.begin() + static_cast<int64_t>(at), c.in(1));
  return {Slot::sequence(std::move(out))};
}
Outputs erase(Context& c) {
  std::vector<Slot> out = items(c, 0);
  if (out.empty()) c.does_not_fit("an empty sequence has nothing to erase");
  const size_t at = c.has(1) ? position(c, 1, out.size(), false) : out.size() - 1;
  out.erase(out.begin() + static_cast<int64_t>(at));
  return {Slot::sequence(std::move(out))};
}
Outputs at(Context& c) { return {items(c, 0)[position(c, 1, items(c, 0).size(), false)]}; }
Outputs length(Context& c) {
  return {Term(c.b, c.b.elements({static_cast<int64_t>(items(c, 0).size())}, {}))};
}

Outputs concat_from(Context& c) {
  std::vector<Term> parts;
  for (const Slot& s : items(c, 0)) parts.emplace_back(c.b, s.tensor);
  if (parts.empty()) c.does_not_fit("an empty sequence cannot be joined");
  const bool stack = c.integer("new_axis", 0) != 0;
  const int64_t axis = c.axis(c.integer("axis"), parts[0].rank() + (stack ? 1 : 0));
  if (stack)
    for (Term& t : parts) t = unsqueeze(t, {axis});
  return {concat(parts, axis)};
}

Outputs split_to(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const bool keep = c.has(1) || c.integer("keepdims", 1) != 0;
  std::vector<sym::Expr> sizes;
  const auto total = sym::as_const(x.dim(axis));
  if (c.has(1) && c.in(1).rank() == 1) {
    sizes = c.sizes_of(1, "split", 0, x.dim(axis));
  } else {
    const int64_t each = c.has(1) ? c.integers_of(1, "split").at(0) : 1;
    if (!total || each < 1)
      c.unsupported("splitting into a sequence needs a size that is known at compile time",
                    "fix the size: --dim name=size");
    for (int64_t done = 0; done < *total; done += each) sizes.emplace_back(std::min(each, *total - done));
  }
  std::vector<Slot> out;
  sym::Expr start = 0;
  for (sym::Expr size : sizes) {
    const Term part = slice(x, axis, start, size);
    out.push_back(keep ? part : squeeze(part, {axis}));
    start += size;
  }
  return {Slot::sequence(std::move(out))};
}

Outputs make_optional(Context& c) { return {c.has(0) ? c.slot(0) : Slot::empty_optional()}; }
Outputs has_element(Context& c) {
  const bool there = c.has(0) && c.slot(0).kind != Slot::Kind::kEmptyOptional;
  return {Term(c.b, c.b.elements({there ? 1 : 0}, {}, DType::kBool))};
}
Outputs get_element(Context& c) {
  if (c.slot(0).kind == Slot::Kind::kEmptyOptional) c.does_not_fit("an empty optional has no element");
  return {c.slot(0)};
}

constexpr Row kRows[] = {
    {"ConcatFromSequence", concat_from},
    {"Optional", make_optional},
    {"OptionalGetElement", get_element},
    {"OptionalHasElement", has_element},
    {"SequenceAt", at},
    {"SequenceConstruct", construct},
    {"SequenceEmpty", empty},
    {"SequenceErase", erase},
    {"SequenceInsert", insert},
    {"SequenceLength", length},
    {"SplitToSequence", split_to},
};

}  // namespace

std::span<const Row> sequence_rows() { return kRows; }

}  // namespace stridec::onnx

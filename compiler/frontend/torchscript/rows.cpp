// Lists that a loop filled whose end only the run knows: one row of a tensor for each item.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/slices.h"
#include "compiler/frontend/torchscript/builtins.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using ops::Dims;
using ops::Term;

bool is_open(const Value& v) { return v.sequence && (v.sequence->rows || v.sequence->growing); }

// All items as rows.
Term all_rows(const Call& c, const Value& list) {
  std::vector<Term> parts;
  for (const Value& item : list.items()) {
    if (!item.is_tensor()) Evaluator::unsupported(cat("'", c.name, "' of a list with ", kind_name(item)));
    parts.push_back(ops::unsqueeze(aten::read(c.e.b, item.tensor), {0}));
  }
  parts.push_back(aten::read(c.e.b, *list.sequence->rows));
  return parts.size() == 1 ? parts[0] : ops::concat(parts, 0);
}

int64_t dim_of(const Call& c, int64_t rank) {
  const Value* dim = c.named(1, "dim");
  const int64_t d = dim && dim->integer.is_const() ? dim->integer.value() : 0;
  if (d < -rank || d >= rank) throw Raised{cat("dim ", d, " of a tensor with ", rank, " dims")};
  return d < 0 ? d + rank : d;
}

// Dim 0 goes to this place.
Term moved(Term t, int64_t to) {
  Dims order;
  for (int64_t d = 1; d <= to; ++d) order.push_back(d);
  order.push_back(0);
  for (int64_t d = to + 1; d < t.rank(); ++d) order.push_back(d);
  return ops::permute(t, order);
}

Value stack(const Call& c) {
  const Term rows = all_rows(c, c.at(0));
  return Value(aten::fresh(moved(rows, dim_of(c, rows.rank()))));
}
Value concatenated(const Call& c) {
  const Term rows = all_rows(c, c.at(0));
  if (rows.rank() < 2) throw Raised{"zero-dimensional tensors cannot be concatenated"};
  const int64_t d = dim_of(c, rows.rank() - 1);
  const Term t = moved(rows, d);
  graph::Shape shape = t.shape();
  shape[static_cast<size_t>(d)] = shape[static_cast<size_t>(d)] * shape[static_cast<size_t>(d + 1)];
  shape.erase(shape.begin() + d + 1);
  return Value(aten::fresh(ops::reshape(t, shape)));
}
Value item(const Call& c) {
  const Term rows = all_rows(c, c.at(0));
  if (!c.at(1).is_whole()) Evaluator::unsupported(cat("an index of ", kind_name(c.at(1))));
  const aten::Tensor all = aten::fresh(rows);
  return Value(aten::select_view(all, 0, aten::python_index(c.e.b, rows.dim(0), c.at(1).integer)));
}

}  // namespace

std::optional<Value> call_rows(const Call& c) {
  if (std::ranges::none_of(c.given.values, is_open)) return std::nullopt;
  const Value& list = c.at(0);
  const bool alone = is_open(list) && std::none_of(c.given.values.begin() + 1, c.given.values.end(), is_open);
  if (alone && list.sequence->growing && !list.sequence->rows && (c.name == "append" || c.name == "add_"))
    return std::nullopt;
  if (alone && !list.sequence->growing) {
    if (c.name == "len") return Value::of_integer(all_rows(c, list).dim(0));
    if (c.name == "stack") return stack(c);
    if (c.name == "cat" || c.name == "concat") return concatenated(c);
    if (c.name == "__getitem__") return item(c);
  }
  Evaluator::unsupported(cat("'", c.name, "' of a list whose length only the run knows"),
                         "fix the number of iterations of the loop that fills it: --dim NAME=SIZE");
}

}  // namespace stridec::torchscript

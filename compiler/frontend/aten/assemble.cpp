// Operators that assemble tensors from others: stacks, diagonals, products of sets.
#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/creation.h"

namespace stridec::aten {
namespace {

using namespace ops;

Results call_named(Context& c, const std::string& name, const std::string& overload,
                   std::vector<NamedValue> args) {
  const Schema* schema = find_schema("aten", name, overload);
  if (!schema) c.unsupported(cat("operator ", c.schema.full_name(), " is not supported"));
  return call(c.b, *schema, std::move(args));
}

// At least n dims, with the new ones where NumPy puts them.
Tensor at_least(Context& c, const Value& v, size_t n) {
  const size_t rank = shape_of(c.b, v.tensor).size();
  Value out = v;
  const auto added = [&](int64_t at) {
    out = call_named(c, "unsqueeze", "", {{"self", out}, {"dim", Value::integer_of(at)}})[0];
  };
  if (n >= 1 && rank == 0) added(0);
  if (n >= 2 && rank <= 1) added(0);
  if (n >= 3 && rank <= 2) added(2);
  return out.tensor;
}
template <size_t n>
Results atleast(Context& c) {
  if (c.names("self")) return {at_least(c, c.arg("self"), n)};
  std::vector<Value> out;
  for (const Value& v : c.arg("tensors").items) out.emplace_back(at_least(c, v, n));
  return {Value::list(std::move(out))};
}

Results concatenated(Context& c, std::vector<Value> parts, int64_t dim) {
  return call_named(c, "cat", "",
                    {{"tensors", Value::list(std::move(parts))}, {"dim", Value::integer_of(dim)}});
}
// hstack, vstack, dstack: along dim n - 1, or 0, of tensors with n dims.
template <size_t n>
Results stacked(Context& c) {
  std::vector<Value> parts;
  for (const Value& v : c.arg("tensors").items) parts.emplace_back(at_least(c, v, n));
  if (parts.empty()) c.does_not_fit("no tensors to stack");
  const bool vector = shape_of(c.b, parts[0].tensor).size() == 1;
  return concatenated(c, std::move(parts), n == 3 ? 2 : n == 1 && !vector ? 1 : 0);
}
Results column_stack(Context& c) {
  std::vector<Value> parts;
  for (const Value& v : c.arg("tensors").items) {
    const Term t = read(c.b, v.tensor);
    parts.emplace_back(t.rank() <= 1 ? Value(reshape(t, {count(t.shape()), 1})) : v);
  }
  return concatenated(c, std::move(parts), 1);
}

template <int64_t dim>
Results split_along(Context& c) {
  const int64_t rank = std::ssize(shape_of(c.b, c.tensor("self")));
  const int64_t at = dim == 1 && rank == 1 ? 0 : dim;
  const bool sections = c.names("sections");
  return call_named(c, "tensor_split", sections ? "sections" : "indices",
                    {{"self", c.arg("self")},
                     {sections ? "sections" : "indices", c.arg(sections ? "sections" : "indices")},
                     {"dim", Value::integer_of(at)}});
}

// A tensor whose view, by the operator that the name has before "_scatter", gets the elements of src.
Results view_scatter(Context& c) {
  const std::string view = c.schema.name.substr(0, c.schema.name.size() - std::string("_scatter").size());
  const Tensor base = fresh(c.in("self"));
  base.storage->strides = c.tensor("self").strides;  // as_strided_scatter goes by places in memory
  std::vector<NamedValue> args{{"self", base}};
  for (const SchemaArgument& a : c.schema.arguments)
    if (a.name != "self" && a.name != "src") args.push_back({a.name, c.arg(a.name)});
  const Tensor part = call_named(c, view, "", std::move(args)).at(0).tensor;
  const Term old = read(c.b, part);
  write(c.b, part, expand(cast(c.in("src"), old.dtype(), false), old.shape()));
  return {base};
}

Term diagonal_at(Term x, int64_t offset) {
  Builder& b = x.builder();
  const sym::Expr n = x.dim(x.rank() - 1), size = b.simplify(n + std::abs(offset));
  const Term row = index_along(b, {size, size}, 0, DType::kI64),
             column = index_along(b, {size, size}, 1, DType::kI64);
  const Term at = maximum(minimum(offset >= 0 ? row : column, size_as(b, DType::kI64, n - 1)), 0);
  const Term on = eye(b, {size, size}, offset);
  if (n.is_const(0)) {
    Shape shape(x.shape().begin(), x.shape().end() - 1);
    shape.insert(shape.end(), {size, size});
    return filled(b, shape, x.dtype(), 0);
  }
  const Term spread = gather(x, at, x.rank() - 1);
  return is_bool(x.dtype()) ? logical_and(spread, on) : select(on, spread, 0);
}
Results diag_embed(Context& c) {
  const Term x = c.in("self");
  const Term y = diagonal_at(x, c.integer("offset"));
  const int64_t rank = y.rank(), first = normal_dim(c.integer("dim1"), rank),
                second = normal_dim(c.integer("dim2"), rank);
  Dims order(static_cast<size_t>(rank), -1);
  order[static_cast<size_t>(first)] = rank - 2;
  order[static_cast<size_t>(second)] = rank - 1;
  int64_t next = 0;
  for (int64_t& d : order)
    if (d < 0) d = next++;
  return {permute(y, order)};
}
Results diagflat(Context& c) {
  const Term x = c.in("self");
  return {diagonal_at(reshape(x, {count(x.shape())}), c.integer("offset"))};
}
Results diag(Context& c) {
  if (c.in("self").rank() == 1) return {diagonal_at(c.in("self"), c.integer("diagonal"))};
  const Value copy =
      call_named(c, "diagonal", "", {{"self", c.arg("self")}, {"offset", c.arg("diagonal")}})[0];
  return {read(c.b, copy.tensor)};
}
Results trace(Context& c) {
  const Value d = call_named(c, "diagonal", "", {{"self", c.arg("self")}})[0];
  return call_named(c, "sum", "", {{"self", d}});
}

Results block_diag(Context& c) {
  const Value& list = c.arg("tensors");
  const DType to = result_type(c.b, list.items);
  std::vector<Term> blocks;
  sym::Expr columns = 0, at = 0;
  for (Term t : c.terms("tensors")) {
    while (t.rank() < 2) t = unsqueeze(t, {0});
    blocks.push_back(cast(t, to, false));
    columns = columns + t.dim(1);
  }
  const bool truth = is_bool(to);
  for (Term& t : blocks) {
    const sym::Expr width = t.dim(1);
    const Term wide =
        ops::pad(truth ? cast(t, DType::kU8, false) : t, {0, at}, {0, c.b.simplify(columns - at - width)}, 0);
    t = truth ? cast(wide, DType::kBool, false) : wide;
    at = c.b.simplify(at + width);
  }
  return {concat(blocks, 0)};
}

// All tuples with an element of each tensor.
Results cartesian_prod(Context& c) {
  const std::vector<Term> axes = c.terms("tensors");
  if (axes.size() == 1) return {axes[0]};
  Shape shape;
  for (Term t : axes) shape.push_back(t.dim(0));
  std::vector<Term> columns;
  for (size_t i = 0; i < axes.size(); ++i) {
    Shape own(axes.size(), 1);
    own[i] = shape[i];
    columns.push_back(reshape(expand(reshape(axes[i], own), shape), {count(shape), 1}));
  }
  return {concat(columns, 1)};
}

void choose(int64_t n, int64_t r, bool repeat, std::vector<int64_t>& now, std::vector<sym::Expr>& out) {
  if (std::ssize(now) == r) {
    out.insert(out.end(), now.begin(), now.end());
    return;
  }
  const int64_t from = now.empty() ? 0 : now.back() + !repeat;
  for (int64_t i = from; i < n; ++i) {
    now.push_back(i);
    choose(n, r, repeat, now, out);
    now.pop_back();
  }
}
Results combinations(Context& c) {
  const Term x = c.in("self");
  const int64_t r = c.integer("r");
  if (!x.dim(0).is_const() || r < 0) c.unsupported("combinations of a number that is known only at run time");
  if (r == 0) return {filled(c.b, {0}, x.dtype(), 0)};
  std::vector<sym::Expr> at;
  std::vector<int64_t> now;
  choose(x.dim(0).value(), r, c.flag("with_replacement"), now, at);
  if (at.size() > 1'000'000) c.unsupported("more than a million combinations");
  const Shape shape{std::ssize(at) / r, r};
  if (at.empty()) return {filled(c.b, {0, r}, x.dtype(), 0)};
  return {gather(x, Term(c.b, c.b.elements(std::move(at), shape, DType::kI64)), 0)};
}

Results kron(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  const size_t rank = std::max(x.shape().size(), y.shape().size());
  Shape xs(rank - x.shape().size(), 1), ys(rank - y.shape().size(), 1), wide_x, wide_y, out;
  xs.insert(xs.end(), x.shape().begin(), x.shape().end());
  ys.insert(ys.end(), y.shape().begin(), y.shape().end());
  for (size_t d = 0; d < rank; ++d) {
    wide_x.insert(wide_x.end(), {xs[d], 1});
    wide_y.insert(wide_y.end(), {1, ys[d]});
    out.push_back(xs[d] * ys[d]);
  }
  const Term a = reshape(x, wide_x), b = reshape(y, wide_y);
  return {reshape(is_bool(x.dtype()) ? logical_and(a, b) : a * b, out)};
}

Results vander(Context& c) {
  const Term given = c.in("x"), x = given.rank() == 0 ? unsqueeze(given, {0}) : given;
  const DType to = is_float(x.dtype()) ? x.dtype() : DType::kI64;
  const int64_t last = x.rank();
  const sym::Expr n = c.has("N") ? c.size("N") : x.dim(last - 1);
  Term power = index_along(c.b, {n}, 0, DType::kI64);
  if (!c.names("increasing") || !c.flag("increasing"))
    if (c.schema.name == "vander") power = size_as(c.b, DType::kI64, n - 1) - power;
  const Term w = widen(cast(x, to, false));
  return {cast(pow(unsqueeze(w, {last}), cast(power, w.dtype(), false)), to, false)};
}

// The coordinates of a triangle of a matrix, row by row; its sizes are known at compile time.
template <bool upper>
Results triangle_indices(Context& c) {
  const int64_t rows = c.integer("row"), columns = c.integer("col"), offset = c.integer("offset");
  std::vector<sym::Expr> of_row, of_column;
  if (rows * columns > 10'000'000) c.unsupported("indices of a triangle of more than 10 million elements");
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (upper ? j - i >= offset : j - i <= offset) of_row.emplace_back(i), of_column.emplace_back(j);
  const int64_t found = std::ssize(of_row);
  of_row.insert(of_row.end(), of_column.begin(), of_column.end());
  const DType to = c.dtype("dtype").value_or(DType::kI64);
  if (found == 0) return {filled(c.b, {2, 0}, to, 0)};
  return {cast(Term(c.b, c.b.elements(std::move(of_row), {2, found}, DType::kI64)), to, false)};
}

template <int64_t dim>
Results flipped(Context& c) {
  return {flip(c.in("self"), {dim})};
}

// Each tensor in so many chunks along dim, padded with zeros: [..., chunks, elements of the tensors].
Results chunk_cat(Context& c) {
  const int64_t chunks = c.integer("num_chunks");
  std::vector<Term> parts;
  for (Term t : c.terms("tensors")) {
    const int64_t dim = c.dim("dim", t.rank());
    const sym::Expr size = c.b.simplify(sym::ceildiv(t.dim(dim), chunks));
    Shape none(t.shape().size(), 0), after = none;
    after[static_cast<size_t>(dim)] = size * chunks - t.dim(dim);
    Shape shape(t.shape().begin(), t.shape().begin() + dim);
    shape.emplace_back(chunks);
    shape.push_back(size * count(t.shape(), dim + 1, t.rank()));
    parts.push_back(reshape(pad(t, none, after, 0), shape));
  }
  if (parts.empty()) c.does_not_fit("_chunk_cat of no tensors");
  return {concat(parts, parts[0].rank() - 1)};
}

// The sum over what broadcasting to self's shape has repeated.
Results sum_to_size(Context& c) {
  Term x = c.in("self");
  const Shape to = c.sizes("size");
  Dims lead(x.shape().size() - to.size());
  std::iota(lead.begin(), lead.end(), 0);
  const auto sum = [](Term t, const Dims& dims, bool keep) {
    if (dims.empty()) return t;
    if (is_bool(t.dtype())) t = cast(t, DType::kI64, false);
    return cast(reduce_sum(widen(t), dims, keep), t.dtype(), false);
  };
  if (to.empty() && is_bool(x.dtype())) x = cast(x, DType::kI64, false);
  x = sum(x, lead, false);
  Dims ones;
  for (size_t d = 0; d < to.size(); ++d)
    if (to[d].is_const(1) && !x.shape()[d].is_const(1)) ones.push_back(static_cast<int64_t>(d));
  return {sum(x, ones, kKeep)};
}

constexpr Row kRows[] = {
    {"_chunk_cat", chunk_cat},
    {"as_strided_scatter", view_scatter},
    {"atleast_1d", atleast<1>, Numbers::kComplex},
    {"atleast_2d", atleast<2>, Numbers::kComplex},
    {"atleast_3d", atleast<3>, Numbers::kComplex},
    {"block_diag", block_diag},
    {"cartesian_prod", cartesian_prod},
    {"column_stack", column_stack},
    {"combinations", combinations},
    {"diag", diag},
    {"diag_embed", diag_embed},
    {"diagflat", diagflat},
    {"diagonal_scatter", view_scatter},
    {"dsplit", split_along<2>, Numbers::kComplex},
    {"dstack", stacked<3>},
    {"fliplr", flipped<1>},
    {"flipud", flipped<0>},
    {"hsplit", split_along<1>, Numbers::kComplex},
    {"hstack", stacked<1>},
    {"kron", kron},
    {"linalg_vander", vander},
    {"row_stack", stacked<2>},
    {"sum_to_size", sum_to_size},
    {"trace", trace},
    {"tril_indices", triangle_indices<false>},
    {"triu_indices", triangle_indices<true>},
    {"vander", vander},
    {"vsplit", split_along<0>, Numbers::kComplex},
    {"vstack", stacked<2>},
};

}  // namespace

std::span<const Row> assemble_rows() { return kRows; }

}  // namespace stridec::aten

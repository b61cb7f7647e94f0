// Reading and writing at indices.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term scatter_elements(Term x, Term index, Term source, int64_t dim, const char* how) {
  Builder& b = x.builder();
  return {b, b.add1(OpKind::kScatterElements, {x.id(), index.id(), source.id()},
                    {{"dim", dim}, {"reduction", std::string(how)}})};
}

// The coordinates of the elements that are not zero, [rank, count]; the count is bound during the run.
Term nonzero_of(Term x) {
  Builder& b = x.builder();
  const Term t = is_bool(x.dtype()) ? x : logical_not(equal(x, 0));
  const sym::Expr found = b.fresh_symbol("nonzero", 0, count(x.shape()));
  return {b, b.add1(OpKind::kNonZero, {t.id()}, {{"count", found}})};
}
Results nonzero(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) c.unsupported("nonzero of a scalar");
  return {transpose(nonzero_of(x), 0, 1)};
}
Results argwhere(Context& c) { return nonzero(c); }
Results masked_select(Context& c) {
  const Term x = c.in("self"), mask = c.in("mask");
  const Shape shape = broadcast(c.b, {x.shape(), mask.shape()}, "masked_select");
  const sym::Expr n = count(shape);
  const Term at = nonzero_of(reshape(expand(mask, shape), {n}));
  return {gather(reshape(expand(x, shape), {n}), reshape(at, {at.dim(1)}), 0)};
}

Results embedding(Context& c) { return {gather(c.in("weight"), c.in("indices"), 0)}; }
Results index_select(Context& c) {
  const Term x = c.in("self"), index = c.in("index");
  if (x.rank() == 0) return {x};
  return {gather(x, index.rank() == 0 ? reshape(index, {1}) : index, c.dim("dim", x.rank()))};
}
Results op_gather(Context& c) {
  const Term x = c.in("self"), index = c.in("index");
  if (x.rank() == 0) return {expand(x, index.shape())};
  const int64_t dim = c.dim("dim", x.rank());
  return {Term(c.b, c.b.add1(OpKind::kGatherElements, {x.id(), index.id()}, {{"dim", dim}}))};
}
Results take(Context& c) {
  const Term x = c.in("self");
  return {gather(reshape(x, {count(x.shape())}), c.in("index"), 0)};
}
Results take_along_dim(Context& c) {
  Term x = c.in("self"), index = c.in("indices");
  if (!c.has("dim")) {
    x = reshape(x, {count(x.shape())});
    index = reshape(index, {count(index.shape())});
    return {Term(c.b, c.b.add1(OpKind::kGatherElements, {x.id(), index.id()}, {{"dim", int64_t{0}}}))};
  }
  const int64_t dim = c.dim("dim", x.rank());
  Shape shape = x.shape(), other = index.shape();
  shape[static_cast<size_t>(dim)] = other.at(static_cast<size_t>(dim)) = 1;
  const Shape both = broadcast(c.b, {shape, other}, "take_along_dim");
  Shape xs = both, is = both;
  xs[static_cast<size_t>(dim)] = x.dim(dim);
  is[static_cast<size_t>(dim)] = index.dim(dim);
  return {Term(
      c.b, c.b.add1(OpKind::kGatherElements, {expand(x, xs).id(), expand(index, is).id()}, {{"dim", dim}}))};
}

// The indices of index.Tensor and index_put: one tensor of integers for each indexed dim, of one shape.
// Masks have become the coordinates of their true elements.
struct Indices {
  std::vector<std::optional<Term>> of_dim;
  Shape shape;           // of each
  Dims indexed, others;  // dims of the tensor
  bool adjacent = true;  // the result has the indices' dims where the first indexed dim was
};

Indices read_indices(Context& c, Term x) {
  Indices out;
  std::vector<Shape> shapes;
  for (const Value& item : c.arg("indices").items) {
    if (item.is_none()) {
      out.of_dim.emplace_back();
      continue;
    }
    const Term t = as_term(c.b, item);
    if (is_float(t.dtype())) c.does_not_fit("an index is a float");
    if (!is_bool(t.dtype()) && t.dtype() != DType::kU8) {
      out.of_dim.emplace_back(cast(t, DType::kI64, false));
      continue;
    }
    if (t.rank() == 0) c.unsupported("a mask without dims as an index");
    for (int64_t d = 0; d < t.rank(); ++d) {
      const size_t at = out.of_dim.size() + static_cast<size_t>(d);
      if (at >= x.shape().size()) c.does_not_fit("a mask has more dims than the tensor");
      c.b.require(sym::eq(t.dim(d), x.shape()[at]), "a mask of size {0} for a dim of size {1}",
                  {t.dim(d), x.shape()[at]});
    }
    const Term places = nonzero_of(t);
    for (int64_t d = 0; d < t.rank(); ++d) out.of_dim.emplace_back(squeeze(slice(places, 0, d, 1), {0}));
  }
  if (std::ssize(out.of_dim) > x.rank())
    c.does_not_fit(cat("too many indices for a tensor of rank ", x.rank()));
  out.of_dim.resize(x.shape().size());
  for (const auto& t : out.of_dim)
    if (t) shapes.push_back(t->shape());
  if (!shapes.empty()) out.shape = broadcast(c.b, shapes, "index");
  for (size_t d = 0; d < out.of_dim.size(); ++d) {
    if (!out.of_dim[d]) {
      out.others.push_back(static_cast<int64_t>(d));
      continue;
    }
    if (!out.indexed.empty() && out.indexed.back() + 1 != static_cast<int64_t>(d)) out.adjacent = false;
    out.indexed.push_back(static_cast<int64_t>(d));
    out.of_dim[d] = expand(*out.of_dim[d], out.shape);
  }
  return out;
}

// Dims of the tensor with the indexed ones in front.
Dims front_order(const Indices& indices) {
  Dims order = indices.indexed;
  order.insert(order.end(), indices.others.begin(), indices.others.end());
  return order;
}
// Index tuples [shape..., indexed dims]; negative ones count from the end.
Term tuples_of(const Indices& indices) {
  std::vector<Term> parts;
  for (int64_t d : indices.indexed)
    parts.push_back(unsqueeze(*indices.of_dim[static_cast<size_t>(d)], {std::ssize(indices.shape)}));
  return concat(parts, std::ssize(indices.shape));
}
// Where the indices' dims stand in the result: the order that brings [indices..., others...] there.
Dims result_order(const Indices& indices) {
  const int64_t count = std::ssize(indices.shape), lead = indices.adjacent ? indices.indexed.front() : 0;
  Dims order;
  for (int64_t i = 0; i < lead; ++i) order.push_back(count + i);
  for (int64_t i = 0; i < count; ++i) order.push_back(i);
  for (int64_t i = lead; i < std::ssize(indices.others); ++i) order.push_back(count + i);
  return order;
}

Results index(Context& c) {
  const Term x = c.in("self");
  const Indices indices = read_indices(c, x);
  if (indices.indexed.empty()) return {x};
  if (indices.indexed.size() == 1)
    return {gather(x, *indices.of_dim[static_cast<size_t>(indices.indexed[0])], indices.indexed[0])};
  const Term front = permute(x, front_order(indices));
  const Term rows(
      c.b, c.b.add1(OpKind::kGatherNd, {front.id(), tuples_of(indices).id()}, {{"batch_dims", int64_t{0}}}));
  return {permute(rows, result_order(indices))};
}

Term put(Context& c, Term x, const Indices& indices, Term values, bool accumulate) {
  const Term front = permute(x, front_order(indices));
  Shape rows = indices.shape;
  for (int64_t d : indices.others) rows.push_back(x.dim(d));
  const Dims order = result_order(indices);
  Dims back(order.size());
  Shape shape(order.size(), 1);
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    shape[i] = rows[static_cast<size_t>(order[i])];
  }
  const Term updates = permute(expand(values, shape), back);
  const Term out(c.b, c.b.add1(OpKind::kScatterNd, {front.id(), tuples_of(indices).id(), updates.id()},
                               {{"reduction", std::string(accumulate ? "add" : "none")}}));
  const Dims to_front = front_order(indices);
  Dims home(to_front.size());
  for (size_t i = 0; i < to_front.size(); ++i)
    home[static_cast<size_t>(to_front[i])] = static_cast<int64_t>(i);
  return permute(out, home);
}
Results index_put(Context& c) {
  const Term x = c.in("self"), values = cast(c.in("values"), x.dtype(), false);
  // One mask and one value: a choice, whose size is known.
  const auto& items = c.arg("indices").items;
  if (items.size() == 1 && items[0].is_tensor() && !c.flag("accumulate")) {
    const Term mask = as_term(c.b, items[0]);
    if (is_bool(mask.dtype()) && mask.rank() <= x.rank() && count(values.shape()).is_const(1)) {
      Shape shape = mask.shape();
      shape.resize(x.shape().size(), 1);
      return {select(expand(reshape(mask, shape), x.shape()), expand(reshape(values, {}), x.shape()), x)};
    }
  }
  const Indices indices = read_indices(c, x);
  if (indices.indexed.empty()) return {expand(values, x.shape())};
  return {put(c, x, indices, values, c.flag("accumulate"))};
}

Results masked_fill(Context& c) {
  const Term x = c.in("self"), mask = c.in("mask");
  return {select(mask, expand(scalar_of(c.b, c.arg("value"), x.dtype()), {}), x)};
}
Results masked_scatter(Context& c) {
  const Term x = c.in("self"), mask = expand(c.in("mask"), x.shape()), source = c.in("source");
  const sym::Expr n = count(x.shape());
  const Term flat = reshape(mask, {n});
  const Term rank(c.b, c.b.add1(OpKind::kCumSum, {cast(flat, DType::kI64, false).id()},
                                {{"dim", int64_t{0}}, {"exclusive", int64_t{1}}, {"reverse", int64_t{0}}}));
  const sym::Expr given = count(source.shape());
  const Term at = select(flat, rank, 0);
  const Term taken = gather(reshape(source, {given}), at, 0);
  return {select(mask, reshape(taken, x.shape()), x)};
}

// The part of `source` that the index covers.
Term covered(Term source, Term index) {
  for (int64_t d = 0; d < source.rank(); ++d)
    if (!(source.dim(d) == index.dim(d))) source = slice(source, d, 0, index.dim(d));
  return source;
}
const char* reduction_named(const Context& c, const std::string& reduce) {
  if (reduce == "sum" || reduce == "add") return "add";
  if (reduce == "prod" || reduce == "multiply") return "mul";
  if (reduce == "amax") return "max";
  if (reduce == "amin") return "min";
  c.unsupported(cat("reduction '", reduce, "'"));
}
Results scatter_with(Context& c, const char* how) {
  const Term x = c.in("self"), index = c.in("index");
  if (x.rank() == 0) c.unsupported("scatter into a scalar");
  const int64_t dim = c.dim("dim", x.rank());
  const bool value = c.names("value");
  const Term source = value ? expand(scalar_of(c.b, c.arg("value"), x.dtype()), index.shape())
                            : covered(cast(c.in("src"), x.dtype(), false), index);
  return {scatter_elements(x, index, source, dim, how)};
}
Results scatter(Context& c) {
  return scatter_with(c, c.has("reduce") ? reduction_named(c, c.text("reduce")) : "none");
}
Results scatter_add(Context& c) { return scatter_with(c, "add"); }
Results scatter_reduce(Context& c) {
  if (!c.flag("include_self")) c.unsupported("scatter_reduce without the elements of self");
  return scatter_with(c, reduction_named(c, c.text("reduce")));
}

// Rows along a dim: index is rank 1 and source has the dims of self.
Results along_index(Context& c, Term source, const char* how) {
  const Term x = c.in("self");
  const int64_t dim = c.dim("dim", x.rank());
  Term index = c.in("index");
  Shape shape(x.shape().size(), 1);
  shape[static_cast<size_t>(dim)] = count(index.shape());
  Shape rows = x.shape();
  rows[static_cast<size_t>(dim)] = count(index.shape());
  index = expand(reshape(index, shape), rows);
  return {scatter_elements(x, index, expand(cast(source, x.dtype(), false), rows), dim, how)};
}
Results index_copy(Context& c) { return along_index(c, c.in("source"), "none"); }
Results index_add(Context& c) {
  Term source = cast(c.in("source"), c.in("self").dtype(), false);
  const Value& alpha = c.arg("alpha");
  if (!(alpha.kind == Value::Kind::kInt && alpha.integer.is_const(1)))
    source = source * c.scalar("alpha", source.dtype());
  return along_index(c, source, "add");
}
Results index_fill(Context& c) {
  return along_index(c, scalar_of(c.b, c.arg("value"), c.in("self").dtype()), "none");
}

Results item(Context& c) {
  const Term x = reshape(c.in("self"), {});
  if (is_float(x.dtype())) {
    Tensor out = fresh(x);
    out.wrapped = true;
    return {out};
  }
  const auto known = c.b.known(x);
  if (known && known->size() == 1)
    return {is_bool(x.dtype()) ? Value::condition((*known)[0]) : Value::integer_of((*known)[0])};
  const bool truth = is_bool(x.dtype());
  const Term whole = truth ? cast(x, DType::kI64, false) : x;
  const sym::Expr e = c.b.symbol_of(whole, "item", truth ? 0 : -kLargestSize, truth ? 1 : kLargestSize);
  return {truth ? Value::condition(sym::ne(e, 0)) : Value::integer_of(e)};
}

Results isin(Context& c) {
  const Term x = as_term(c.b, c.arg(c.names("elements") ? "elements" : "element"));
  const Term y = as_term(c.b, c.arg(c.names("test_elements") ? "test_elements" : "test_element"));
  const DType to = promote(x.dtype(), y.dtype());
  Shape wide = x.shape();
  wide.emplace_back(1);
  const Term same = equal(cast(reshape(x, wide), to, false), cast(reshape(y, {count(y.shape())}), to, false));
  const Term found = reduce(OpKind::kReduceOr, same, {x.rank()});
  return {c.names("invert") && c.flag("invert") ? logical_not(found) : found};
}
Results one_hot(Context& c) {
  const int64_t classes = c.integer("num_classes");
  const Term x = c.in("self");
  if (classes < 1) c.unsupported("one_hot without a number of classes");
  Shape wide = x.shape();
  wide.emplace_back(1);
  return {cast(equal(reshape(x, wide), index_along(c.b, {classes}, 0, x.dtype())), DType::kI64, false)};
}

constexpr Row kRows[] = {
    {"_local_scalar_dense", item},
    {"_unsafe_index", index},
    {"_unsafe_index_put", index_put},
    {"argwhere", argwhere},
    {"embedding", embedding},
    {"gather", op_gather},
    {"index", index},
    {"index_add", index_add},
    {"index_copy", index_copy},
    {"index_fill", index_fill},
    {"index_put", index_put},
    {"index_select", index_select},
    {"isin", isin},
    {"item", item},
    {"masked_fill", masked_fill},
    {"masked_scatter", masked_scatter},
    {"masked_select", masked_select},
    {"nonzero", nonzero},
    {"one_hot", one_hot},
    {"scatter", scatter},
    {"scatter_add", scatter_add},
    {"scatter_reduce", scatter_reduce},
    {"take", take},
    {"take_along_dim", take_along_dim},
};

}  // namespace

std::span<const Row> indexing_rows() { return kRows; }

}  // namespace stridec::aten

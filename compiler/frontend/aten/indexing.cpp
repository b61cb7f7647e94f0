// Reading and writing at indices.
#include <algorithm>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/loss.h"
#include "compiler/ops/floor_quotient.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// The coordinates of the elements that are not zero, [rank, count]; the count is bound during the run.
Term nonzero_of(Term x) {
  Builder& b = x.builder();
  const Term t = is_bool(x.dtype()) ? x : logical_not(equal(x, 0));
  return coordinates(t, b.fresh_symbol("nonzero", 0, count(x.shape())));
}
Results nonzero(Context& c) {
  const Term x = c.in("self");
  if (x.rank() > 0) return {transpose(nonzero_of(x), 0, 1)};
  // A scalar has no coordinates: [0, 0] or [1, 0].
  const Term found = nonzero_of(reshape(x, {1}));
  return {reshape(slice(found, 0, 0, 0), {found.dim(1), 0})};
}
// The first `size` of them, filled up where there are fewer.
Results nonzero_static(Context& c) {
  const Term x = c.in("self");
  const sym::Expr size = c.size("size");
  if (x.rank() == 0) return {filled(c.b, {size, 0}, DType::kI64, 0)};
  const Term fill = filled(c.b, {size, x.rank()}, DType::kI64, static_cast<double>(c.integer("fill_value")));
  return {slice(concat({transpose(nonzero_of(x), 0, 1), fill}, 0), 0, 0, size)};
}
// where() of a condition alone: the coordinates along each dim.
Results where_nonzero(Context& c) {
  const Term x = c.in("condition"), found = nonzero_of(x.rank() > 0 ? x : reshape(x, {1}));
  std::vector<Value> out;
  for (int64_t d = 0; d < std::max<int64_t>(x.rank(), 1); ++d)
    out.emplace_back(squeeze(slice(found, 0, d, 1), {0}));
  return {Value::list(std::move(out))};
}
Results argwhere(Context& c) { return nonzero(c); }
Results masked_select(Context& c) {
  const Term x = c.in("self"), mask = c.in("mask");
  const Shape shape = broadcast(c.b, {x.shape(), mask.shape()}, "masked_select");
  const sym::Expr n = count(shape);
  const Term at = nonzero_of(reshape(expand(mask, shape), {n}));
  return {gather(reshape(expand(x, shape), {n}), reshape(at, {at.dim(1)}), 0)};
}

// Rows of the table. `padding`: the row that training leaves as it is.
Term table_rows(Context& c, Term table, Term index, std::optional<sym::Expr> padding) {
  graph::Attributes attributes = {{"dim", int64_t{0}}, {"batch_dims", int64_t{0}}, {"wrap", int64_t{0}}};
  if (padding) attributes.set("no_gradient_at", *padding);
  if (c.flag("scale_grad_by_freq")) attributes.set("shared_gradient", int64_t{1});
  return {c.b, c.b.add1(graph::OpKind::kGather, {table, index}, std::move(attributes))};
}
Results embedding(Context& c) {
  const int64_t padding = c.integer("padding_idx");
  return {table_rows(c, c.in("weight"), c.in("indices"),
                     padding < 0 ? std::nullopt : std::optional(sym::Expr(padding)))};
}
// The rows at the indices are scaled down to a norm of max_norm.
Results embedding_renorm(Context& c) {
  const Term x = c.in("self"), indices = c.in("indices"), w = widen(x);
  const double most = c.number("max_norm");
  const Term norm = p_norm(w, c.number("norm_type"), {1}, true);
  const Term at = reshape(indices, {count(indices.shape())});
  const Term chosen = scatter_elements(filled(c.b, {x.dim(0)}, DType::kBool, 0), at,
                                       filled(c.b, at.shape(), DType::kBool, 1), 0, "none", Negative::kError);
  const Term scaled = logical_and(unsqueeze(chosen, {1}), greater(norm, most));
  const Term factor = divide_into(most, select(scaled, norm, 1) + 1e-7);
  return {cast(select(expand(scaled, w.shape()), w * factor, w), x.dtype(), false)};
}
// Sums, means or maxima of rows of the table: bag i has the indices from offsets[i] on.
Results embedding_bag(Context& c) {
  const Term table = c.in("weight"), index = c.in("indices"),
             offsets = cast(c.in("offsets"), DType::kI64, false);
  const sym::Expr n = index.dim(0);
  const sym::Expr bags = c.b.simplify(offsets.dim(0) - (c.flag("include_last_offset") ? 1 : 0));
  const int64_t mode = c.integer("mode");  // 0 sum, 1 mean, 2 max
  const Term place = index_along(c.b, {n}, 0, DType::kI64);
  const Term bag = minimum(search_sorted(offsets, place, true) - 1.0, size_as(c.b, DType::kI64, bags - 1));
  Term kept = filled(c.b, {n}, DType::kBool, 1);
  if (c.names("padding_idx") && c.has("padding_idx"))
    if (const int64_t padding = c.integer("padding_idx");
        padding != -1 || c.schema.overload == "padding_idx") {
      const Term skipped =
          size_as(c.b, index.dtype(), padding < 0 ? table.dim(0) + padding : sym::Expr(padding));
      kept = logical_not(equal(index, skipped));
    }
  Term rows = widen(table_rows(c, table, index, std::nullopt));
  const DType wide = rows.dtype();
  if (c.has("per_sample_weights"))
    rows = rows * unsqueeze(cast(c.in("per_sample_weights"), wide, false), {1});
  const Term at = expand(unsqueeze(bag, {1}), rows.shape()), used = unsqueeze(kept, {1});
  const Shape shape{bags, table.dim(1)};
  const Term none = filled(c.b, {bags}, DType::kI64, 0);
  const Term sizes = scatter_elements(none, bag, cast(kept, DType::kI64, false), 0, "add");
  Term out = scatter_elements(filled(c.b, shape, wide, 0), at, select(used, rows, 0), 0, "add");
  if (mode == 1) out = out / unsqueeze(cast(maximum(sizes, 1), wide, false), {1});
  if (mode == 2) {
    const double low = -std::numeric_limits<double>::infinity();
    const Term top = scatter_elements(filled(c.b, shape, wide, low), at, select(used, rows, low), 0, "max");
    out = select(unsqueeze(greater(sizes, 0), {1}), top, 0);
  }
  return {cast(out, table.dtype(), false), bag, sizes, sizes};
}

// Bools are added as `or` and multiplied as `and`.
struct Scattered {
  DType dtype;
  std::string how;
};
Scattered scattered_as(DType dtype, const std::string& how) {
  if (!is_bool(dtype) || how == "none") return {dtype, how};
  return {DType::kU8, how == "add" ? "max" : how == "mul" ? "min" : how};
}
Term scatter_at(Term x, Term index, Term source, int64_t dim, const std::string& how,
                Negative negative = Negative::kError) {
  const Scattered s = scattered_as(x.dtype(), how);
  const Term out =
      scatter_elements(cast(x, s.dtype, false), index, cast(source, s.dtype, false), dim, s.how, negative);
  return cast(out, x.dtype(), false);
}

// Elements at flat positions.
Results put(Context& c) {
  const Term x = c.in("self"), index = c.in("index");
  const sym::Expr n = count(index.shape());
  const Term source = reshape(cast(c.in("source"), x.dtype(), false), {n});
  return {reshape(scatter_at(reshape(x, {count(x.shape())}), reshape(index, {n}), source, 0,
                             c.flag("accumulate") ? "add" : "none", Negative::kFromEnd),
                  x.shape())};
}

Results index_select(Context& c) {
  const Term x = c.in("self"), index = c.in("index");
  if (x.rank() == 0) return {x};
  return {gather(x, index.rank() == 0 ? reshape(index, {1}) : index, c.dim("dim", x.rank()), 0,
                 Negative::kError)};
}
Results op_gather(Context& c) {
  const Term x = c.in("self"), index = c.in("index");
  if (x.rank() == 0) return {expand(x, index.shape())};
  const int64_t dim = c.dim("dim", x.rank());
  return {gather_elements(x, index, dim, Negative::kError)};
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
    return {gather_elements(x, index, 0)};
  }
  const int64_t dim = c.dim("dim", x.rank());
  Shape shape = x.shape(), other = index.shape();
  shape[static_cast<size_t>(dim)] = other.at(static_cast<size_t>(dim)) = 1;
  const Shape both = broadcast(c.b, {shape, other}, "take_along_dim");
  Shape xs = both, is = both;
  xs[static_cast<size_t>(dim)] = x.dim(dim);
  is[static_cast<size_t>(dim)] = index.dim(dim);
  return {gather_elements(expand(x, xs), expand(index, is), dim)};
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
// The position of the indices' dims in the result: the order that brings [indices..., others...] there.
Dims result_order(const Indices& indices) {
  const int64_t count = std::ssize(indices.shape), lead = indices.adjacent ? indices.indexed.front() : 0;
  Dims order;
  for (int64_t i = 0; i < lead; ++i) order.push_back(count + i);
  for (int64_t i = 0; i < count; ++i) order.push_back(i);
  for (int64_t i = lead; i < std::ssize(indices.others); ++i) order.push_back(count + i);
  return order;
}

Term elements_at(Term x, const Indices& indices) {
  if (indices.indexed.size() == 1)
    return gather(x, *indices.of_dim[static_cast<size_t>(indices.indexed[0])], indices.indexed[0]);
  const Term front = permute(x, front_order(indices));
  return permute(gather_nd(front, tuples_of(indices)), result_order(indices));
}
Results index(Context& c) {
  const Term x = c.in("self");
  const Indices indices = read_indices(c, x);
  if (indices.indexed.empty()) return {x};
  return {elements_at(x, indices)};
}

Term put(Term x, const Indices& indices, Term values, bool accumulate) {
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
  const Scattered s = scattered_as(x.dtype(), accumulate ? "add" : "none");
  const Term out =
      cast(scatter_nd(cast(front, s.dtype, false), tuples_of(indices), cast(updates, s.dtype, false), s.how),
           x.dtype(), false);
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
  return {put(x, indices, values, c.flag("accumulate"))};
}

// Indices where the mask is false may be out of range: they are clamped, and their elements are not used.
Indices clamped_indices(Context& c, Term x) {
  Indices indices = read_indices(c, x);
  for (int64_t d : indices.indexed) {
    std::optional<Term>& t = indices.of_dim[static_cast<size_t>(d)];
    t = minimum(maximum(*t, size_as(c.b, DType::kI64, sym::Expr(0) - x.dim(d))),
                size_as(c.b, DType::kI64, x.dim(d) - 1));
  }
  return indices;
}
Results masked_index(Context& c) {
  const Term x = c.in("self"), mask = c.in("mask");
  const Indices indices = clamped_indices(c, x);
  const Term found = indices.indexed.empty() ? x : elements_at(x, indices);
  return {select(mask, found, expand(scalar_of(c.b, c.arg("fill"), x.dtype()), {}))};
}
Results masked_index_put_accumulate(Context& c) {
  const Term x = c.in("self"), mask = c.in("mask");
  const Term values = select(mask, cast(c.in("values"), x.dtype(), false), 0);
  const Indices indices = clamped_indices(c, x);
  if (indices.indexed.empty()) return {is_bool(x.dtype()) ? logical_or(x, values) : x + values};
  return {put(x, indices, values, true)};
}

Results masked_fill(Context& c) {
  const Term x = c.in("self"), mask = c.in("mask");
  return {select(mask, expand(scalar_of(c.b, c.arg("value"), x.dtype()), {}), x)};
}
Results masked_scatter(Context& c) {
  const Shape both = broadcast(c.b, {c.in("self").shape(), c.in("mask").shape()}, "masked_scatter");
  const Term x = expand(c.in("self"), both), mask = expand(c.in("mask"), both), source = c.in("source");
  const sym::Expr n = count(x.shape());
  const Term flat = reshape(mask, {n});
  const Term rank = cumulative_sum(cast(flat, DType::kI64, false), 0, true);
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
// The number that a reduction by scatter starts from: it changes no element.
Term neutral(Builder& b, DType t, const std::string& how) {
  if (how == "add" || how == "mul") return number(b, t, how == "mul");
  const bool high = how == "min";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (is_float(t)) return number(b, t, high ? kInfinity : -kInfinity);
  const int bits = is_bool(t) ? 1 : 8 * static_cast<int>(byte_size(t));
  if (!is_signed(t)) return {b, b.elements({high ? (int64_t{1} << std::min(bits, 62)) - 1 : 0}, {}, t)};
  const int64_t most = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
  return {b, b.elements({high ? most : -most - 1}, {}, t)};
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
  if (x.rank() == 0) {
    const Term one = reshape(x, {1}), at = reshape(index, {1});
    const Term source = c.names("value") ? expand(scalar_of(c.b, c.arg("value"), x.dtype()), {1})
                                         : reshape(cast(c.in("src"), x.dtype(), false), {1});
    return {reshape(scatter_at(one, at, source, 0, how), {})};
  }
  const int64_t dim = c.dim("dim", x.rank());
  const bool value = c.names("value");
  const Term source = value ? expand(scalar_of(c.b, c.arg("value"), x.dtype()), index.shape())
                            : covered(cast(c.in("src"), x.dtype(), false), index);
  return {scatter_at(x, index, source, dim, how)};
}
Results scatter(Context& c) {
  return scatter_with(c, c.has("reduce") ? reduction_named(c, c.text("reduce")) : "none");
}
Results scatter_add(Context& c) { return scatter_with(c, "add"); }
// Where no element of src goes, self stays. Without include_self the others start from the reduction's
// neutral element.
Results reduce_at(Context& c, Term x, Term index, Term source, int64_t dim) {
  const std::string reduce = c.text("reduce");
  const bool mean = reduce == "mean", self = c.flag("include_self");
  const char* how = mean ? "add" : reduction_named(c, reduce);
  const Term one = filled(c.b, source.shape(), DType::kI64, 1), none = filled(c.b, x.shape(), DType::kI64, 0);
  const Term hits = scatter_elements(none, index, one, dim, "add", Negative::kError), hit = greater(hits, 0);
  Term start = x;
  if (!self) start = select(hit, neutral(c.b, x.dtype(), how), x);
  Term out = scatter_at(start, index, source, dim, how);
  if (!mean) return {out};
  const Term n = maximum(self ? hits + 1.0 : hits, 1), w = widen(out);
  const Term divisor = cast(n, w.dtype(), false);
  if (is_float(x.dtype())) return {cast(w / divisor, x.dtype(), false)};
  return {floor_quotient(w, divisor)};
}
// The same for tensors without dims.
Results reduce_scalar(Context& c, Term x, Term index, Term source) {
  const Term y = as_term(c.b, reduce_at(c, reshape(x, {1}), reshape(index, {1}), reshape(source, {1}), 0)[0]);
  return {reshape(y, {})};
}
Results scatter_reduce(Context& c) {
  const Term x = c.in("self"), index = c.in("index"), source = cast(c.in("src"), x.dtype(), false);
  if (x.rank() == 0) return reduce_scalar(c, x, index, source);
  return reduce_at(c, x, index, covered(source, index), c.dim("dim", x.rank()));
}

Results index_reduce(Context& c) {
  const Term x = c.in("self"), index = c.in("index"), source = cast(c.in("source"), x.dtype(), false);
  if (x.rank() == 0) return reduce_scalar(c, x, index, source);
  const int64_t dim = c.dim("dim", x.rank());
  return reduce_at(c, x, expand(along_dim(index, dim, x.rank()), source.shape()), source, dim);
}

// Rows along a dim: index is rank 1 and source has the dims of self.
Results along_index(Context& c, Term source, const char* how, Negative negative = Negative::kError) {
  const Term x = c.in("self");
  if (x.rank() == 0) {
    const Term index = reshape(c.in("index"), {1}),
               value = expand(cast(reshape(source, {1}), x.dtype(), false), {1});
    return {reshape(scatter_at(reshape(x, {1}), index, value, 0, how, negative), {})};
  }
  const int64_t dim = c.dim("dim", x.rank());
  const Term index = c.in("index");
  Shape rows = x.shape();
  rows[static_cast<size_t>(dim)] = count(index.shape());
  return {scatter_at(x, expand(along_dim(index, dim, x.rank()), rows),
                     expand(cast(source, x.dtype(), false), rows), dim, how, negative)};
}
Results index_copy(Context& c) { return along_index(c, c.in("source"), "none"); }
Results index_add(Context& c) {
  Term source = cast(c.in("source"), c.in("self").dtype(), false);
  const Value& alpha = c.arg("alpha");
  if (!(alpha.kind == Value::Kind::kInt && alpha.integer.is_const(1)))
    source = is_bool(source.dtype()) ? logical_and(source, c.scalar("alpha", DType::kBool))
                                     : source * c.scalar("alpha", source.dtype());
  return along_index(c, source, "add");
}
Results index_fill(Context& c) {
  return along_index(c, scalar_of(c.b, c.arg("value"), c.in("self").dtype()), "none", Negative::kFromEnd);
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
  const Term all = index_along(c.b, {classes}, 0, x.dtype());
  const Term checked =
      gather(all, reshape(x, wide), 0, 0, Negative::kError);  // a class out of range: an error
  return {cast(equal(checked, all), DType::kI64, false)};
}

constexpr Row kRows[] = {
    {"_local_scalar_dense", item},
    {"_unsafe_index", index},
    {"_unsafe_index_put", index_put},
    {"_unsafe_masked_index", masked_index},
    {"_unsafe_masked_index_put_accumulate", masked_index_put_accumulate},
    {"argwhere", argwhere},
    {"_embedding_bag", embedding_bag},
    {"_embedding_bag_forward_only", embedding_bag},
    {"embedding", embedding},
    {"embedding_bag", embedding_bag},
    {"embedding_renorm", embedding_renorm},
    {"gather", op_gather},
    {"index", index},
    {"index_add", index_add},
    {"index_copy", index_copy},
    {"index_fill", index_fill},
    {"index_put", index_put},
    {"index_reduce", index_reduce},
    {"index_select", index_select},
    {"isin", isin},
    {"item", item},
    {"masked_fill", masked_fill},
    {"masked_scatter", masked_scatter},
    {"masked_select", masked_select},
    {"nonzero", nonzero},
    {"nonzero_static", nonzero_static},
    {"where", where_nonzero},
    {"one_hot", one_hot},
    {"put", put},
    {"scatter", scatter},
    {"scatter_add", scatter_add},
    {"scatter_reduce", scatter_reduce},
    {"take", take},
    {"take_along_dim", take_along_dim},
};

}  // namespace

std::span<const Row> indexing_rows() { return kRows; }

}  // namespace stridec::aten

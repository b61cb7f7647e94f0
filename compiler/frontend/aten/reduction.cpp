// Reductions and scans.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/factorization.h"
#include "compiler/ops/composite/loss.h"

namespace stridec::aten {
namespace {

using namespace ops;

bool keeps(const Context& c) { return c.names("keepdim") && c.flag("keepdim"); }
Dims dims_of(const Context& c, Term x) {
  if (c.names("dim")) return c.dims("dim", x.rank());
  Dims out(static_cast<size_t>(x.rank()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// Sums of integers and bools are i64.
Term summed_input(const Context& c, Term x) {
  const auto to = c.names("dtype") ? c.dtype("dtype") : std::nullopt;
  if (to) return cast(x, *to, false);
  return is_float(x.dtype()) ? x : cast(x, DType::kI64, false);
}
// Storage floats are reduced in f32.
template <class F>
Term in_wide(Term x, F&& f) {
  return cast(f(widen(x)), x.dtype(), false);
}

Results sum(Context& c) {
  const Term x = summed_input(c, c.in("self"));
  if (x.rank() == 0) return {x};
  const Dims dims = dims_of(c, x);
  return {in_wide(x, [&](Term w) { return reduce_sum(w, dims, keeps(c)); })};
}
Results nansum(Context& c) {
  const Term x = summed_input(c, c.in("self"));
  if (x.rank() == 0 || !is_float(x.dtype())) return sum(c);
  const Dims dims = dims_of(c, x);
  return {
      in_wide(x, [&](Term w) { return reduce_sum(select(apply(OpKind::kIsNan, w), 0, w), dims, keeps(c)); })};
}
Results prod(Context& c) {
  const Term x = summed_input(c, c.in("self"));
  if (x.rank() == 0) return {x};
  const Dims dims = dims_of(c, x);
  if (is_bool(x.dtype())) return {reduce(OpKind::kReduceAnd, x, dims, keeps(c))};
  return {in_wide(x, [&](Term w) { return reduce(OpKind::kReduceProd, w, dims, keeps(c)); })};
}
Results mean(Context& c) {
  Term x = c.in("self");
  if (const auto to = c.dtype("dtype")) x = cast(x, *to, false);
  if (!is_float(x.dtype())) c.does_not_fit("the mean of integers needs a dtype");
  if (x.rank() == 0) return {x};
  const Dims dims = dims_of(c, x);
  return {in_wide(x, [&](Term w) { return reduce_mean(w, dims, keeps(c)); })};
}

Term extreme(Term x, bool largest, const Dims& dims, bool keep) {
  if (is_bool(x.dtype())) return reduce(largest ? OpKind::kReduceOr : OpKind::kReduceAnd, x, dims, keep);
  return reduce(largest ? OpKind::kReduceMax : OpKind::kReduceMin, x, dims, keep);
}
template <bool largest>
Results amax(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x};
  return {extreme(x, largest, dims_of(c, x), keeps(c))};
}

Term comparable(Term x) { return is_bool(x.dtype()) ? cast(x, DType::kU8, false) : x; }
Term arg_extreme(Context& c, Term x, bool largest, int64_t dim, bool keep) {
  const Term at(c.b, c.b.add1(largest ? OpKind::kArgMax : OpKind::kArgMin, {comparable(x).id()},
                              {{"dim", dim}, {"last", int64_t{0}}}));
  return keep ? unsqueeze(at, {dim}) : at;
}
template <bool largest>
Results argmax(Context& c) {
  const Term x = c.in("self");
  if (!c.has("dim") || x.rank() == 0) {
    const Term at = arg_extreme(c, reshape(x, {count(x.shape())}), largest, 0, false);
    return {keeps(c) ? reshape(at, Shape(x.shape().size(), 1)) : at};
  }
  return {arg_extreme(c, x, largest, c.dim("dim", x.rank()), keeps(c))};
}
// max(self), and max.dim with the values and their positions.
template <bool largest>
Results max(Context& c) {
  const Term x = c.in("self");
  if (!c.names("dim")) {
    if (x.rank() == 0) return {x};
    return {extreme(x, largest, dims_of(c, x), false)};
  }
  if (x.rank() == 0) return {x, filled(c.b, {}, DType::kI64, 0)};
  const int64_t dim = c.dim("dim", x.rank());
  return {extreme(x, largest, {dim}, keeps(c)), arg_extreme(c, x, largest, dim, keeps(c))};
}
Results aminmax(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x, x};
  const Dims dims = c.has("dim") ? Dims{c.dim("dim", x.rank())} : dims_of(c, x);
  return {extreme(x, false, dims, keeps(c)), extreme(x, true, dims, keeps(c))};
}

template <OpKind kind>
Results truth(Context& c) {
  const Term x = c.in("self"), t = is_bool(x.dtype()) ? x : logical_not(equal(x, 0));
  if (x.rank() == 0) return {t};
  const Term out = reduce(kind, t, dims_of(c, x), keeps(c));
  return {x.dtype() == DType::kU8 ? cast(out, DType::kU8, false) : out};
}
Results is_all_true(Context& c) {
  const Term x = c.in("self");
  return {x.rank() == 0 ? x : reduce(OpKind::kReduceAnd, x, dims_of(c, x))};
}
Results is_any_true(Context& c) {
  const Term x = c.in("self");
  return {x.rank() == 0 ? x : reduce(OpKind::kReduceOr, x, dims_of(c, x))};
}
Results count_nonzero(Context& c) {
  const Term x = c.in("self");
  const Term t = cast(is_bool(x.dtype()) ? x : logical_not(equal(x, 0)), DType::kI64, false);
  return {x.rank() == 0 ? t : reduce_sum(t, dims_of(c, x))};
}

struct Moments {
  Term variance, mean;
};
Moments moments(Context& c) {
  const Term x = widen(c.in("self"));
  const Dims dims = dims_of(c, x);
  double correction = 1;
  if (c.names("correction")) correction = c.optional_number("correction").value_or(1);
  if (c.names("unbiased")) correction = c.flag("unbiased") ? 1 : 0;
  sym::Expr n = 1;
  for (int64_t d : dims) n = n * x.dim(d);
  const Term mean = x.rank() == 0 ? x : reduce_mean(x, dims, kKeep);
  const Term squares = x.rank() == 0 ? square(x - mean) : reduce_sum(square(x - mean), dims, kKeep);
  const Term count = cast(size_as(c.b, DType::kI64, n), x.dtype(), false) - correction;
  const Term variance = squares / maximum(count, 0);
  const bool keep = keeps(c) || x.rank() == 0;
  return {keep ? variance : squeeze(variance, dims), keep ? mean : squeeze(mean, dims)};
}
Results var(Context& c) { return {cast(moments(c).variance, c.in("self").dtype(), false)}; }
Results std(Context& c) {
  return {cast(root_or_zero(moments(c).variance, 0.5), c.in("self").dtype(), false)};
}
Results var_mean(Context& c) {
  const Moments m = moments(c);
  return {cast(m.variance, c.in("self").dtype(), false), cast(m.mean, c.in("self").dtype(), false)};
}
Results std_mean(Context& c) {
  const Moments m = moments(c);
  return {cast(root_or_zero(m.variance, 0.5), c.in("self").dtype(), false),
          cast(m.mean, c.in("self").dtype(), false)};
}

Results logsumexp(Context& c) {
  Term x = c.in("self");
  if (!is_float(x.dtype())) x = cast(x, DType::kF32, false);
  if (x.rank() == 0) return {x};
  const Dims dims = dims_of(c, x);
  const Term w = widen(x), top = stop_gradient(reduce_max(w, dims, kKeep)),
             shift = select(apply(OpKind::kIsInf, top), 0, top);
  const Term sum = log(reduce_sum(exp(w - shift), dims, kKeep)) + shift;
  return {cast(keeps(c) ? sum : squeeze(sum, dims), x.dtype(), false)};
}

// The operand of a norm, cast to the requested dtype.
Term norm_input(Context& c, const char* name = "self") {
  Term x = c.in(name);
  if (c.names("dtype"))
    if (const auto to = c.dtype("dtype")) x = cast(x, *to, false);
  return is_float(x.dtype()) ? x : cast(x, DType::kF32, false);
}
Results vector_norm(Context& c) {
  const Term x = norm_input(c, c.names("self") ? "self" : "x");
  const char* p = c.names("ord") ? "ord" : "p";
  return {p_norm(x, c.has(p) ? c.number(p) : 2, dims_of(c, x), keeps(c))};
}
// The norm of matrices in two dims: "fro"; an order of 1, -1, inf or -inf, an extreme of the sums of rows or
// columns; "nuc", the sum of singular values, or 2 or -2, an extreme of them.
Term matrix_norm_of(Context& c, Term x, const Value& order, Dims dims, bool keep) {
  const int64_t row = dims.at(0), column = dims.at(1);
  Dims both{std::min(row, column), std::max(row, column)};
  if (row == column) c.does_not_fit("a matrix has two different dims");
  if (order.kind == Value::Kind::kString && order.text == "fro") return p_norm(x, 2, both, keep);
  double p = 0;
  if (order.kind == Value::Kind::kFloat) p = order.number;
  if (order.kind == Value::Kind::kInt && order.integer.is_const())
    p = static_cast<double>(order.integer.value());
  const double size = std::abs(p);
  const bool nuclear = order.kind == Value::Kind::kString && order.text == "nuc";
  if (nuclear || size == 2) {
    Dims order_of_dims;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d != row && d != column) order_of_dims.push_back(d);
    order_of_dims.insert(order_of_dims.end(), {row, column});
    const Term s = singular_values(permute(x, order_of_dims)).values;
    const Dims last{s.rank() - 1};
    const Term n = nuclear ? reduce_sum(widen(s), last) : p > 0 ? reduce_max(s, last) : reduce_min(s, last);
    return cast(keep ? unsqueeze(n, both) : n, x.dtype(), false);
  }
  if (size != 1 && !std::isinf(size)) c.unsupported("a norm of matrices of this order");
  const Term sums = reduce_sum(abs(widen(x)), {size == 1 ? row : column}, kKeep);
  const int64_t over = size == 1 ? column : row;
  // The maximum over no sums is 0.
  const Term out = p > 0 ? maximum(reduce_max(sums, {over}, kKeep), 0) : reduce_min(sums, {over}, kKeep);
  return cast(keep ? out : squeeze(out, both), x.dtype(), false);
}
Results matrix_norm(Context& c) {
  const Term x = norm_input(c, c.names("self") ? "self" : "A");
  return {matrix_norm_of(c, x, c.arg("ord"), c.listed_dims("dim", x.rank()), keeps(c))};
}
Results nuclear_norm(Context& c) {
  const Term x = norm_input(c);
  const Dims dims = c.names("dim") ? c.listed_dims("dim", x.rank()) : Dims{0, 1};
  return {matrix_norm_of(c, x, Value::string("nuc"), dims, keeps(c))};
}
Results linalg_norm(Context& c) {
  const Term x = norm_input(c, c.names("self") ? "self" : "A");
  const size_t given = c.has("dim") ? c.integers("dim").size() : x.shape().size();
  if (!c.has("ord") && !c.has("dim")) {
    const Term all = reshape(x, {count(x.shape())}), n = p_norm(all, 2, {0}, false);
    return {keeps(c) ? reshape(n, Shape(x.shape().size(), 1)) : n};
  }
  if (!c.has("ord") || given < 2) return vector_norm(c);
  const Dims dims = c.has("dim") ? c.listed_dims("dim", x.rank()) : Dims{0, 1};
  return {matrix_norm_of(c, x, c.arg("ord"), dims, keeps(c))};
}
// The norm of the difference of all elements.
Results dist(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term d = widen(x) - widen(y);
  return {cast(p_norm(reshape(d, {count(d.shape())}), c.number("p"), {0}, false), x.dtype(), false)};
}
Results frobenius_norm(Context& c) {
  const Term x = norm_input(c);
  return {p_norm(x, 2, dims_of(c, x), keeps(c))};
}
// Slices along dim whose norm is above the bound are scaled down to it.
Results renorm(Context& c) {
  const Term x = c.in("self"), w = widen(x);
  const int64_t dim = c.dim("dim", x.rank());
  Dims others;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim) others.push_back(d);
  const double most = c.number("maxnorm");
  const Term norm = p_norm(w, c.number("p"), others, kKeep);
  const Term factor =
      select(greater(norm, most), divide_into(most, norm + 1e-7), filled(c.b, norm.shape(), norm.dtype(), 1));
  return {cast(w * factor, x.dtype(), false)};
}

template <OpKind kind>
Results scan(Context& c) {
  const Term x = summed_input(c, c.in("self"));
  if (x.rank() == 0) return {x};
  return {in_wide(x, [&](Term w) {
    return Term(
        c.b, c.b.add1(kind, {w.id()},
                      {{"dim", c.dim("dim", x.rank())}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}}));
  })};
}
Results diff(Context& c) {
  Term x = c.in("self");
  const int64_t dim = c.dim("dim", x.rank());
  if (c.integer("n") == 0) return {x};  // PyTorch then ignores prepend and append
  std::vector<Term> parts;
  if (c.has("prepend")) parts.push_back(c.in("prepend"));
  parts.push_back(x);
  if (c.has("append")) parts.push_back(c.in("append"));
  if (parts.size() > 1) x = concat(parts, dim);
  for (int64_t i = c.integer("n"); i > 0 && !x.dim(dim).is_const(0); --i) {
    const sym::Expr left = c.b.simplify(x.dim(dim) - 1);
    const Term high = slice(x, dim, 1, left), low = slice(x, dim, 0, left);
    x = is_bool(x.dtype()) ? apply(OpKind::kXor, high, low) : high - low;
  }
  return {x};
}

constexpr Row kRows[] = {
    {"_is_all_true", is_all_true},
    {"_is_any_true", is_any_true},
    {"all", truth<OpKind::kReduceAnd>},
    {"amax", amax<true>},
    {"amin", amax<false>},
    {"aminmax", aminmax},
    {"any", truth<OpKind::kReduceOr>},
    {"argmax", argmax<true>},
    {"argmin", argmax<false>},
    {"count_nonzero", count_nonzero},
    {"cumprod", scan<OpKind::kCumProd>},
    {"cumsum", scan<OpKind::kCumSum>},
    {"diff", diff},
    {"dist", dist},
    {"frobenius_norm", frobenius_norm},
    {"linalg_matrix_norm", matrix_norm},
    {"linalg_norm", linalg_norm},
    {"nuclear_norm", nuclear_norm},
    {"linalg_vector_norm", vector_norm},
    {"logsumexp", logsumexp},
    {"max", max<true>},
    {"mean", mean},
    {"min", max<false>},
    {"nansum", nansum},
    {"norm", vector_norm},
    {"prod", prod},
    {"renorm", renorm},
    {"std", std},
    {"std_mean", std_mean},
    {"sum", sum},
    {"var", var},
    {"var_mean", var_mean},
};

}  // namespace

std::span<const Row> reduction_rows() { return kRows; }

}  // namespace stridec::aten

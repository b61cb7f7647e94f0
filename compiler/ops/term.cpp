#include "compiler/ops/term.h"

#include <numeric>

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

Term resolve(Term beside, Operand y) {
  return y.is_term ? Term(beside.builder(), y.term) : number_like(beside, y.number);
}

Term extremum(OpKind kind, Term x, Operand y, Ties ties) {
  graph::Attributes attributes;
  if (ties != Ties::kHalf && is_float(x.dtype()))
    attributes.set("ties", std::string(ties == Ties::kFirst ? "first" : "second"));
  return {x.builder(), x.builder().add1(kind, {x, resolve(x, y).id()}, std::move(attributes))};
}

}  // namespace

Term number(Builder& b, DType dtype, double value) { return {b, b.scalar(dtype, value)}; }
Term number_like(Term x, double value) { return number(x.builder(), x.dtype(), value); }
Term size_as(Builder& b, DType dtype, sym::Expr size) { return {b, size_scalar(b, size, dtype)}; }

// ---- pointwise ----

Term apply(OpKind kind, Term x) { return {x.builder(), unary(x.builder(), kind, x)}; }
Term apply(OpKind kind, Term x, Operand y) {
  return {x.builder(), binary(x.builder(), kind, x, resolve(x, y))};
}
Term operator+(Term x, Operand y) { return apply(OpKind::kAdd, x, y); }
Term fma(Term x, Term y, Term z) { return {x.builder(), x.builder().add1(OpKind::kFma, {x, y, z})}; }
Term operator-(Term x, Operand y) { return apply(OpKind::kSub, x, y); }
Term operator*(Term x, Operand y) { return apply(OpKind::kMul, x, y); }
Term operator/(Term x, Operand y) { return apply(OpKind::kDiv, x, y); }
Term operator-(Term x) { return apply(OpKind::kNeg, x); }
Term subtract_from(double n, Term x) { return number_like(x, n) - x; }
Term divide_into(double n, Term x) { return number_like(x, n) / x; }
Term exp(Term x) { return apply(OpKind::kExp, x); }
Term log(Term x) { return apply(OpKind::kLog, x); }
Term sqrt(Term x) { return apply(OpKind::kSqrt, x); }
Term abs(Term x) { return apply(OpKind::kAbs, x); }
Term square(Term x) { return x * x; }
Term erf(Term x) { return apply(OpKind::kErf, x); }
Term tanh(Term x) { return apply(OpKind::kTanh, x); }
Term pow(Term x, Operand y) { return apply(OpKind::kPow, x, y); }
Term rcp(Term x) { return apply(OpKind::kRcp, x); }
Term rsqrt(Term x) { return apply(OpKind::kRsqrt, x); }
Term minimum(Term x, Operand y, Ties ties) { return extremum(OpKind::kMin, x, y, ties); }
Term maximum(Term x, Operand y, Ties ties) { return extremum(OpKind::kMax, x, y, ties); }
Term stop_gradient(Term x) { return apply(OpKind::kStopGradient, x); }
Term as_softmax(Term x, Term y, const Dims& dims) {
  return {x.builder(), x.builder().add1(OpKind::kAsSoftmax, {x.id(), y.id()}, {{"dims", dims}})};
}
Term less(Term x, Operand y) { return apply(OpKind::kLt, x, y); }
Term less_equal(Term x, Operand y) { return apply(OpKind::kLe, x, y); }
Term greater(Term x, Operand y) { return apply(OpKind::kLt, resolve(x, y), x); }
Term greater_equal(Term x, Operand y) { return apply(OpKind::kLe, resolve(x, y), x); }
Term equal(Term x, Operand y) { return apply(OpKind::kEq, x, y); }
Term logical_not(Term x) { return apply(OpKind::kNot, x); }
Term logical_and(Term x, Term y) { return apply(OpKind::kAnd, x, y); }
Term logical_or(Term x, Term y) { return apply(OpKind::kOr, x, y); }
Term select(Term condition, Term x, Term y) { return {x.builder(), where(x.builder(), condition, x, y)}; }
Term select(Term condition, Term x, double y) { return select(condition, x, number_like(x, y)); }
Term select(Term condition, double x, Term y) { return select(condition, number_like(y, x), y); }
Term cast(Term x, DType to, bool saturate) { return {x.builder(), cast(x.builder(), x, to, saturate)}; }
Term widen(Term x) { return {x.builder(), to_compute(x.builder(), x)}; }

// ---- reductions: an empty list of dims reduces nothing, unlike in the helpers, where it means all ----

Dims all_dims(int64_t rank) {
  Dims dims(static_cast<size_t>(rank));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}
Term reduce(OpKind kind, Term x, const Dims& dims, bool keep) {
  return dims.empty() ? x : Term(x.builder(), reduce(x.builder(), kind, x, dims, keep));
}
Term reduce_sum(Term x, const Dims& dims, bool keep) { return reduce(OpKind::kReduceSum, x, dims, keep); }
Term reduce_max(Term x, const Dims& dims, bool keep) { return reduce(OpKind::kReduceMax, x, dims, keep); }
Term reduce_min(Term x, const Dims& dims, bool keep) { return reduce(OpKind::kReduceMin, x, dims, keep); }
Term reduce_mean(Term x, const Dims& dims, bool keep) {
  return dims.empty() ? x : Term(x.builder(), reduce_mean(x.builder(), x, dims, keep));
}

// ---- views ----

Term reshape(Term x, const Shape& shape) { return {x.builder(), reshape(x.builder(), x, shape)}; }
Term permute(Term x, const Dims& order) { return {x.builder(), permute(x.builder(), x, order)}; }
Term transpose(Term x, int64_t a, int64_t b) { return {x.builder(), swap_dims(x.builder(), x, a, b)}; }
Term expand(Term x, const Shape& shape) { return {x.builder(), expand(x.builder(), x, shape)}; }

Term unsqueeze(Term x, const Dims& positions) {
  Shape shape = x.shape();
  for (int64_t p : positions) shape.insert(shape.begin() + p, 1);
  return reshape(x, shape);
}

Term squeeze(Term x, const Dims& dims) {
  return dims.empty() ? x : Term(x.builder(), squeeze(x.builder(), x, dims));
}

Term slice(Term x, int64_t dim, sym::Expr start, sym::Expr extent, int64_t step) {
  return {x.builder(), slice(x.builder(), x, dim, start, extent, step)};
}

Term flip(Term x, const Dims& dims) {
  for (int64_t d : dims) x = {x.builder(), flip(x.builder(), x, d)};
  return x;
}

Term concat(const std::vector<Term>& parts, int64_t dim) {
  STRIDEC_CHECK(!parts.empty());
  return {parts[0].builder(), concat(parts[0].builder(), {parts.begin(), parts.end()}, dim)};
}

Term pad(Term x, const Shape& before, const Shape& after, double value) {
  return {x.builder(), pad(x.builder(), x, before, after, number_like(x, value).id())};
}

Term index_along(Builder& b, const Shape& shape, int64_t dim, DType dtype) {
  return {b, iota(b, shape, dim, dtype)};
}
Term positions_along(Builder& b, sym::Expr size, int64_t dim, int64_t rank) {
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(dim)] = size;
  return index_along(b, shape, dim, DType::kI64);
}
Term along_dim(Term values, int64_t dim, int64_t rank) {
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(dim)] = count(values.shape());
  return reshape(values, shape);
}
Term filled(Builder& b, const Shape& shape, DType dtype, double value) {
  return {b, full(b, shape, dtype, value)};
}
Term gather(Term data, Term indices, int64_t dim, int64_t batch_dims, Negative negative) {
  Builder& b = data.builder();
  if (negative == Negative::kFromEnd) return {b, gather(b, data, indices, dim, batch_dims)};
  return {b, b.add1(OpKind::kGather, {data, indices},
                    {{"dim", dim}, {"wrap", int64_t{0}}, {"batch_dims", batch_dims}})};
}

Term unidirectional(Term parameter, const Shape& shape, const std::string& what) {
  Builder& b = parameter.builder();
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t extra = std::max<int64_t>(parameter.rank() - rank, 0);
  for (int64_t d = 0; d < extra; ++d)
    b.require(sym::eq(parameter.dim(d), 1),
              cat(what, " has ", parameter.rank(), " dims, dim ", d, " of size {0}, for a result of ", rank),
              {parameter.dim(d)});
  if (extra > 0)
    parameter = reshape(parameter, Shape(parameter.shape().begin() + extra, parameter.shape().end()));
  for (int64_t d = 0; d < parameter.rank(); ++d) {
    const sym::Expr size = parameter.dim(d), to = shape[static_cast<size_t>(rank - parameter.rank() + d)];
    if (size == to || size.is_const(1)) continue;
    b.require(sym::logical_or(sym::eq(size, to), sym::eq(size, 1)),
              cat(what, " has a dim of {0} where the result has {1}"), {size, to});
  }
  return parameter;
}

// ---- shapes ----

sym::Expr count(const Shape& shape) { return sym::product(shape); }
sym::Expr count(const Shape& shape, int64_t from, int64_t to) {
  return sym::product(std::span(shape).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
}

}  // namespace stridec::ops

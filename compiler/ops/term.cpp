#include "compiler/ops/term.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"

namespace stridec::ops {

using graph::Builder;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;

namespace {

Term resolve(Term beside, Operand y) {
  return y.is_term ? Term(beside.builder(), y.term) : number_like(beside, y.number);
}

}  // namespace

Term number(Builder& b, DType dtype, double value) { return {b, b.scalar(dtype, value)}; }
Term number_like(Term x, double value) { return number(x.builder(), x.dtype(), value); }

Term size_as(Builder& b, DType dtype, sym::Expr size) {
  const Term integer(b, b.elements({size}, {}, DType::kI64));
  return cast(integer, dtype);
}

// ---- pointwise ----

Term apply(OpKind kind, Term x) { return {x.builder(), x.builder().add1(kind, {x.id()})}; }
Term apply(OpKind kind, Term x, Operand y) {
  return {x.builder(), x.builder().add1(kind, {x.id(), resolve(x, y).id()})};
}
Term operator+(Term x, Operand y) { return apply(OpKind::kAdd, x, y); }
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
Term rcp(Term x) { return apply(OpKind::kRcp, x); }
Term rsqrt(Term x) { return apply(OpKind::kRsqrt, x); }
Term minimum(Term x, Operand y) { return apply(OpKind::kMin, x, y); }
Term maximum(Term x, Operand y) { return apply(OpKind::kMax, x, y); }
Term less(Term x, Operand y) { return apply(OpKind::kLt, x, y); }
Term less_equal(Term x, Operand y) { return apply(OpKind::kLe, x, y); }
Term greater(Term x, Operand y) { return apply(OpKind::kLt, resolve(x, y), x); }
Term greater_equal(Term x, Operand y) { return apply(OpKind::kLe, resolve(x, y), x); }
Term equal(Term x, Operand y) { return apply(OpKind::kEq, x, y); }
Term logical_not(Term x) { return apply(OpKind::kNot, x); }
Term logical_and(Term x, Term y) { return apply(OpKind::kAnd, x, y); }
Term logical_or(Term x, Term y) { return apply(OpKind::kOr, x, y); }
Term select(Term condition, Term x, Term y) {
  Builder& b = condition.builder();
  return {b, b.add1(OpKind::kSelect, {condition.id(), x.id(), y.id()})};
}
Term select(Term condition, Term x, double y) { return select(condition, x, number_like(x, y)); }
Term select(Term condition, double x, Term y) { return select(condition, number_like(y, x), y); }

Term cast(Term x, DType to, bool saturate) {
  if (x.dtype() == to) return x;
  return {x.builder(),
          x.builder().add1(OpKind::kCast, {x.id()}, {{"to", to}, {"saturate", int64_t{saturate}}})};
}
Term widen(Term x) { return is_storage_float(x.dtype()) ? cast(x, DType::kF32) : x; }

// ---- reductions ----

Term reduce(OpKind kind, Term x, const Dims& dims, bool keep) {
  if (dims.empty()) return x;
  const Term out(x.builder(), x.builder().add1(kind, {x.id()}, {{"dims", dims}}));
  if (!keep) return out;
  Shape shape = x.shape();
  for (int64_t d : dims) shape[static_cast<size_t>(d)] = 1;
  return reshape(out, shape);
}
Term reduce_sum(Term x, const Dims& dims, bool keep) { return reduce(OpKind::kReduceSum, x, dims, keep); }
Term reduce_max(Term x, const Dims& dims, bool keep) { return reduce(OpKind::kReduceMax, x, dims, keep); }
Term reduce_min(Term x, const Dims& dims, bool keep) { return reduce(OpKind::kReduceMin, x, dims, keep); }
Term reduce_mean(Term x, const Dims& dims, bool keep) {
  sym::Expr n = 1;
  for (int64_t d : dims) n *= x.dim(d);
  const Term sum = reduce_sum(x, dims, keep);
  if (n.is_const(1)) return sum;
  return sum / size_as(x.builder(), x.dtype(), n);
}

// ---- views ----

Term reshape(Term x, const Shape& shape) {
  return {x.builder(), x.builder().add1(OpKind::kReshape, {x.id()}, {{"shape", shape}})};
}
Term permute(Term x, const Dims& order) {
  return {x.builder(), x.builder().add1(OpKind::kPermute, {x.id()}, {{"order", order}})};
}

Term transpose(Term x, int64_t a, int64_t b) {
  Dims order(static_cast<size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.at(static_cast<size_t>(a)), order.at(static_cast<size_t>(b)));
  return permute(x, order);
}

Term expand(Term x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return {x.builder(), x.builder().add1(OpKind::kExpand, {x.id()}, {{"shape", shape}})};
}

Term unsqueeze(Term x, const Dims& positions) {
  Shape shape = x.shape();
  for (int64_t p : positions) shape.insert(shape.begin() + p, 1);
  return reshape(x, shape);
}

Term squeeze(Term x, const Dims& dims) {
  Shape shape;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) shape.push_back(x.dim(d));
  return reshape(x, shape);
}

Term align_rank(Term x, int64_t rank) {
  if (x.rank() >= rank) return x;
  Shape shape(static_cast<size_t>(rank - x.rank()), 1);
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return reshape(x, shape);
}

Term slice(Term x, int64_t dim, sym::Expr start, sym::Expr extent, sym::Expr step) {
  Shape starts(x.shape().size(), 0), extents = x.shape(), steps(x.shape().size(), 1);
  const auto d = static_cast<size_t>(dim);
  starts[d] = start;
  extents[d] = extent;
  steps[d] = step;
  return {x.builder(), x.builder().add1(OpKind::kSlice, {x.id()},
                                        {{"starts", starts}, {"extents", extents}, {"steps", steps}})};
}

Term flip(Term x, const Dims& dims) {
  Shape starts(x.shape().size(), 0), steps(x.shape().size(), 1);
  for (int64_t d : dims) {
    starts[static_cast<size_t>(d)] = x.dim(d) - 1;
    steps[static_cast<size_t>(d)] = -1;
  }
  return {x.builder(), x.builder().add1(OpKind::kSlice, {x.id()},
                                        {{"starts", starts}, {"extents", x.shape()}, {"steps", steps}})};
}

Term concat(const std::vector<Term>& parts, int64_t dim) {
  STRIDEC_CHECK(!parts.empty());
  std::vector<ValueId> inputs(parts.begin(), parts.end());
  return {parts[0].builder(), parts[0].builder().add1(OpKind::kConcat, std::move(inputs), {{"dim", dim}})};
}

Term pad(Term x, const Shape& before, const Shape& after, double value) {
  return {x.builder(),
          x.builder().add1(OpKind::kPad, {x.id(), number_like(x, value).id()},
                           {{"before", before}, {"after", after}, {"mode", std::string("constant")}})};
}

Term iota(Builder& b, const Shape& shape, int64_t dim, DType dtype) {
  return {b, b.add1(OpKind::kIota, {}, {{"shape", shape}, {"dim", dim}, {"dtype", dtype}})};
}

Term full(Builder& b, const Shape& shape, DType dtype, double value) {
  return expand(number(b, dtype, value), shape);
}

Term gather(Term data, Term indices, int64_t dim, int64_t batch_dims) {
  return {data.builder(), data.builder().add1(OpKind::kGather, {data.id(), indices.id()},
                                              {{"dim", dim}, {"batch_dims", batch_dims}})};
}

// ---- shapes ----

sym::Expr count(const Shape& shape) { return sym::product(shape); }
sym::Expr count(const Shape& shape, int64_t from, int64_t to) {
  return sym::product(std::span(shape).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
}

Shape broadcast(Builder& b, const Shape& x, const Shape& y) {
  Shape out(std::max(x.size(), y.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const sym::Expr p = i < out.size() - x.size() ? sym::Expr(1) : x[i - (out.size() - x.size())];
    const sym::Expr q = i < out.size() - y.size() ? sym::Expr(1) : y[i - (out.size() - y.size())];
    if (p == q || q.is_const(1)) {
      out[i] = p;
    } else if (p.is_const(1)) {
      out[i] = q;
    } else {
      b.require(sym::logical_or(sym::eq(p, q), sym::logical_or(sym::eq(p, 1), sym::eq(q, 1))),
                "sizes {0} and {1} cannot be broadcast together", {p, q});
      // A constant that is not 1 is the result, whatever the other turns out to be.
      out[i] = p.is_const() ? p : q.is_const() ? q : b.simplify(sym::select(sym::eq(p, 1), q, p));
      if (b.holds(sym::eq(p, q))) out[i] = p;
    }
  }
  return out;
}

}  // namespace stridec::ops

#include "compiler/ops/composite/orthogonal.h"

#include <algorithm>

#include "compiler/ops/composite/arithmetic.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {
namespace {

using graph::OpKind;

// The polynomials of degree 1.
Term first_chebyshev(Chebyshev kind, Term x) {
  switch (kind) {
    case Chebyshev::kFirst: return x;
    case Chebyshev::kSecond: return x * 2.0;
    case Chebyshev::kThird: return x * 2.0 - 1.0;
    case Chebyshev::kFourth: return x * 2.0 + 1.0;
  }
  return x;
}

// For y >= 0, with y = cos(t) or cosh(t): cos(n t), sin((n + 1) t) / sin(t), cos((n + 1/2) t) / cos(t / 2)
// and sin((n + 1/2) t) / sin(t / 2), or the hyperbolic functions of the same.
Term closed_form(Chebyshev kind, Term y, Term n) {
  const double shift = kind == Chebyshev::kFirst ? 0 : kind == Chebyshev::kSecond ? 1 : 0.5;
  const bool odd = kind == Chebyshev::kSecond || kind == Chebyshev::kFourth;
  const auto ratio = [&](OpKind function, Term t) {
    return apply(function, (n + shift) * t) / apply(function, t * shift);
  };
  const Term inside = less(y, 1), outside = greater(y, 1);
  const Term circular =
      ratio(odd ? OpKind::kSin : OpKind::kCos, apply(OpKind::kAcos, select(inside, y, 0.5)));
  const Term hyperbolic =
      ratio(odd ? OpKind::kSinh : OpKind::kCosh, apply(OpKind::kAcosh, select(outside, y, 2)));
  const Term at_one = odd ? n * (1 / shift) + 1.0 : number_like(y, 1);
  const Term out = select(inside, circular, select(outside, hyperbolic, at_one));
  return select(apply(OpKind::kIsNan, y), y, out);
}

}  // namespace

Term chebyshev_polynomial(Chebyshev kind, Term x, Term n) {
  constexpr int kRecurrence = 8;  // up to this degree, which keeps the digits of small values
  const Term degree = apply(OpKind::kTrunc, n), low = less_equal(degree, kRecurrence);
  // Of -y: the kinds 3 and 4 change places.
  const Term negative = less(x, 0), y = abs(x), high = select(low, kRecurrence, degree);
  const auto at = [&](Chebyshev k) { return closed_form(k, y, high); };
  Term out = kind == Chebyshev::kThird    ? select(negative, at(Chebyshev::kFourth), at(Chebyshev::kThird))
             : kind == Chebyshev::kFourth ? select(negative, at(Chebyshev::kThird), at(Chebyshev::kFourth))
                                          : at(kind);
  const Term odd = equal(apply(OpKind::kMod, degree, 2), 1);
  out = select(logical_and(negative, odd), -out, out);
  Term before = number_like(x, 1), last = first_chebyshev(kind, x);
  Term near = select(equal(degree, 0), before, last);
  for (int k = 2; k <= kRecurrence; ++k) {
    const Term next = x * 2.0 * last - before;
    near = select(equal(degree, k), next, near);
    before = last;
    last = next;
  }
  return select(less(degree, 0), 0, select(low, near, out));
}

namespace {

Term first_of(Recurrence kind, Term x) {
  switch (kind) {
    case Recurrence::kHermite: return x * 2.0;
    case Recurrence::kLaguerre: return subtract_from(1, x);
    default: return x;
  }
}
// The polynomial of degree k + 1 from those of degrees k - 1 and k.
Term next_of(Recurrence kind, Term x, Term k, Term before, Term last) {
  switch (kind) {
    case Recurrence::kHermite: return (x * last - k * before) * 2.0;
    case Recurrence::kHermiteE: return x * last - k * before;
    case Recurrence::kLaguerre: return ((k * 2.0 + 1.0 - x) * last - k * before) / (k + 1.0);
    case Recurrence::kLegendre: return ((k * 2.0 + 1.0) * x * last - k * before) / (k + 1.0);
  }
  return x;
}

}  // namespace

Term orthogonal_polynomial(Recurrence kind, Term x, Term n) {
  graph::Builder& b = x.builder();
  const auto known = known_number(n);
  const graph::Shape shape = broadcast(b, {x.shape(), n.shape()}, "orthogonal polynomial");
  x = expand(x, shape);
  const Term degree = expand(apply(OpKind::kTrunc, n), shape), one = filled(b, shape, x.dtype(), 1);
  const sym::Expr trips =
      known ? sym::Expr(std::max<int64_t>(static_cast<int64_t>(*known) - 1, 0)) : kUnbounded;
  const auto condition = [&](Term more) {
    return known ? std::nullopt : std::optional(any_element(more).id());
  };
  const LoopResult result =
      loop(b, trips, condition(greater(degree, 1)), {one.id(), first_of(kind, x).id()},
           [&](const LoopState& state) {
             const Term before(b, state.carried[0]), last(b, state.carried[1]);
             const Term k = cast(Term(b, state.counter_value), x.dtype(), false) + 1.0;
             // A NaN stays.
             const Term active = logical_and(greater(degree, k), equal(last, last));
             const Term next = select(active, next_of(kind, x, k, before, last), last);
             return LoopStep{.condition = condition(logical_and(greater(degree, k + 1.0), equal(next, next))),
                             .carried = {last.id(), next.id()},
                             .stacked = {}};
           });
  const Term out = select(equal(degree, 0), 1, Term(b, result.carried[1]));
  return select(less(degree, 0), 0, out);
}

}  // namespace stridec::ops

// Special functions. Computed in f64, whatever the dtype of the tensors.
#include <cmath>
#include <limits>
#include <numbers>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/bessel.h"
#include "compiler/ops/composite/incomplete_gamma.h"
#include "compiler/ops/composite/orthogonal.h"
#include "compiler/ops/composite/special.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class F>
Results in_f64(Context& c, F&& formula) {
  const Term x = c.in("self");
  return {cast(formula(cast(x, DType::kF64, false)), float_type(x.dtype()), false)};
}
template <Term (*function)(Term)>
Results unary(Context& c) {
  return in_f64(c, function);
}

Results polygamma_row(Context& c) {
  const int64_t order = c.integer("n");
  if (order < 0 || order > 100) c.unsupported("polygamma of this order");
  return in_f64(c, [&](Term x) { return polygamma(order, x); });
}
// log of the multivariate gamma function.
Results mvlgamma(Context& c) {
  const int64_t p = c.integer("p");
  if (p < 1 || p > 100) c.unsupported("mvlgamma of this order");
  return in_f64(c, [&](Term x) {
    Term sum = number_like(x, static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi));
    for (int64_t i = 0; i < p; ++i) sum = sum + lgamma(x - static_cast<double>(i) / 2);
    return sum;
  });
}
// ---- Bessel functions and Airy's; the argument is `self` or `x` ----
template <class F>
Results of_first(Context& c, F&& formula) {
  const Term x = as_term(c.b, c.arg(0));
  return {cast(formula(cast(x, DType::kF64, false)), float_type(x.dtype()), false)};
}
template <Term (*function)(Term)>
Results first(Context& c) {
  return of_first(c, function);
}
template <Term (*function)(Term, int), int order>
Results of_order(Context& c) {
  return of_first(c, [](Term x) { return function(x, order); });
}
template <int order>
Results bessel_i(Context& c) {
  return of_first(c, [](Term x) { return scaled_bessel_i(x, order) * exp(abs(x)); });
}
template <int order>
Results bessel_k(Context& c) {
  return of_first(c, [](Term x) { return scaled_bessel_k(x, order) * exp(-x); });
}

// ---- functions of two arguments ----
struct Pair {
  Term x, y;  // f64, of one shape
  DType to;
};
Pair pair_in_f64(Context& c) {
  const DType to = float_type(result_type(c.b, {c.arg(0), c.arg(1)}));
  const Term x = cast(as_term(c.b, c.arg(0)), DType::kF64, false),
             y = cast(as_term(c.b, c.arg(1)), DType::kF64, false);
  const Shape shape = broadcast(c.b, {x.shape(), y.shape()}, c.schema.name);
  return {expand(x, shape), expand(y, shape), to};
}
template <bool lower>
Results incomplete_gamma_row(Context& c) {
  const Pair p = pair_in_f64(c);
  const IncompleteGamma g = incomplete_gamma(p.x, p.y);
  return {cast(lower ? g.lower : g.upper, p.to, false)};
}
template <Chebyshev kind, bool shifted>
Results chebyshev(Context& c) {
  const Pair p = pair_in_f64(c);
  return {cast(chebyshev_polynomial(kind, shifted ? p.x * 2.0 - 1.0 : p.x, p.y), p.to, false)};
}
template <Recurrence kind>
Results polynomial(Context& c) {
  const DType to = float_type(result_type(c.b, {c.arg(0), c.arg(1)}));
  const auto in = [&](size_t i) { return cast(as_term(c.b, c.arg(i)), DType::kF64, false); };
  const Term x = in(0), n = in(1);
  if (kind != Recurrence::kHermite && kind != Recurrence::kHermiteE)
    return {cast(orthogonal_polynomial(kind, x, n), to, false)};
  // As in PyTorch, the result is NaN for higher degrees. Most arguments would overflow there.
  const double most = to == DType::kF64 ? 512 : 128;
  const Term y = orthogonal_polynomial(kind, x, minimum(n, most));
  return {cast(select(expand(greater(n, most), y.shape()), kNan, y), to, false)};
}
Results ndtr(Context& c) {
  return in_f64(c, [](Term x) { return erfc(x * (-std::numbers::sqrt2 * 0.5)) * 0.5; });
}
Results entr(Context& c) {
  return in_f64(c, [](Term x) {
    const Term out = -(x * log(select(greater(x, 0), x, 1)));
    return select(less(x, 0), number_like(x, -HUGE_VAL), select(apply(OpKind::kIsNan, x), x, out));
  });
}

Results xlog1py(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term wx = widen(x), wy = widen(y), product = wx * apply(OpKind::kLog1p, wy);
  const Term zero = expand(equal(wx, 0), product.shape()),
             nan = expand(apply(OpKind::kIsNan, wy), product.shape());
  return {cast(select(logical_and(zero, logical_not(nan)), 0, product), x.dtype(), false)};
}
Results zeta_row(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term s = cast(x, DType::kF64, false), q = cast(y, DType::kF64, false), both = s + q;
  return {cast(zeta(expand(s, both.shape()), expand(q, both.shape())), x.dtype(), false)};
}

constexpr Row kRows[] = {
    {"digamma", unary<digamma>},
    {"erfc", unary<erfc>},
    {"erfinv", unary<erfinv>},
    {"i0", bessel_i<0>},
    {"igamma", incomplete_gamma_row<true>},
    {"igammac", incomplete_gamma_row<false>},
    {"lgamma", unary<lgamma>},
    {"mvlgamma", mvlgamma},
    {"polygamma", polygamma_row},
    {"special_airy_ai", first<airy_ai>},
    {"special_bessel_j0", of_order<bessel_j, 0>},
    {"special_bessel_j1", of_order<bessel_j, 1>},
    {"special_bessel_y0", of_order<bessel_y, 0>},
    {"special_bessel_y1", of_order<bessel_y, 1>},
    {"special_chebyshev_polynomial_t", chebyshev<Chebyshev::kFirst, false>},
    {"special_chebyshev_polynomial_u", chebyshev<Chebyshev::kSecond, false>},
    {"special_chebyshev_polynomial_v", chebyshev<Chebyshev::kThird, false>},
    {"special_chebyshev_polynomial_w", chebyshev<Chebyshev::kFourth, false>},
    {"special_digamma", unary<digamma>},
    {"special_entr", entr},
    {"special_erfc", unary<erfc>},
    {"special_erfcx", unary<erfcx>},
    {"special_erfinv", unary<erfinv>},
    {"special_gammainc", incomplete_gamma_row<true>},
    {"special_gammaincc", incomplete_gamma_row<false>},
    {"special_gammaln", unary<lgamma>},
    {"special_hermite_polynomial_h", polynomial<Recurrence::kHermite>},
    {"special_hermite_polynomial_he", polynomial<Recurrence::kHermiteE>},
    {"special_i0", bessel_i<0>},
    {"special_i0e", of_order<scaled_bessel_i, 0>},
    {"special_i1", bessel_i<1>},
    {"special_i1e", of_order<scaled_bessel_i, 1>},
    {"special_laguerre_polynomial_l", polynomial<Recurrence::kLaguerre>},
    {"special_legendre_polynomial_p", polynomial<Recurrence::kLegendre>},
    {"special_log_ndtr", unary<log_ndtr>},
    {"special_modified_bessel_i0", bessel_i<0>},
    {"special_modified_bessel_i1", bessel_i<1>},
    {"special_modified_bessel_k0", bessel_k<0>},
    {"special_modified_bessel_k1", bessel_k<1>},
    {"special_multigammaln", mvlgamma},
    {"special_ndtr", ndtr},
    {"special_ndtri", unary<ndtri>},
    {"special_polygamma", polygamma_row},
    {"special_psi", unary<digamma>},
    {"special_scaled_modified_bessel_k0", of_order<scaled_bessel_k, 0>},
    {"special_scaled_modified_bessel_k1", of_order<scaled_bessel_k, 1>},
    {"special_shifted_chebyshev_polynomial_t", chebyshev<Chebyshev::kFirst, true>},
    {"special_shifted_chebyshev_polynomial_u", chebyshev<Chebyshev::kSecond, true>},
    {"special_shifted_chebyshev_polynomial_v", chebyshev<Chebyshev::kThird, true>},
    {"special_shifted_chebyshev_polynomial_w", chebyshev<Chebyshev::kFourth, true>},
    {"special_spherical_bessel_j0", first<spherical_bessel_j0>},
    {"special_xlog1py", xlog1py},
    {"special_zeta", zeta_row},
};

}  // namespace

std::span<const Row> special_rows() { return kRows; }

}  // namespace stridec::aten

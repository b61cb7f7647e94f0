// Special functions. Computed in f64, whatever the dtype of the tensors.
#include <cmath>
#include <numbers>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/special.h"

namespace stridec::aten {
namespace {

using namespace ops;

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
template <Term (*scaled)(Term)>
Results bessel(Context& c) {
  return in_f64(c, [](Term x) { return scaled(x) * exp(abs(x)); });
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
    {"i0", bessel<scaled_bessel_i0>},
    {"lgamma", unary<lgamma>},
    {"mvlgamma", mvlgamma},
    {"polygamma", polygamma_row},
    {"special_digamma", unary<digamma>},
    {"special_entr", entr},
    {"special_erfc", unary<erfc>},
    {"special_erfcx", unary<erfcx>},
    {"special_erfinv", unary<erfinv>},
    {"special_gammaln", unary<lgamma>},
    {"special_i0", bessel<scaled_bessel_i0>},
    {"special_i0e", unary<scaled_bessel_i0>},
    {"special_i1", bessel<scaled_bessel_i1>},
    {"special_i1e", unary<scaled_bessel_i1>},
    {"special_log_ndtr", unary<log_ndtr>},
    {"special_multigammaln", mvlgamma},
    {"special_ndtr", ndtr},
    {"special_ndtri", unary<ndtri>},
    {"special_polygamma", polygamma_row},
    {"special_psi", unary<digamma>},
    {"special_xlog1py", xlog1py},
    {"special_zeta", zeta_row},
};

}  // namespace

std::span<const Row> special_rows() { return kRows; }

}  // namespace stridec::aten

#include "compiler/ops/composite/activations.h"

#include <limits>
#include <numbers>

namespace stridec::ops {

using graph::OpKind;

namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

// Replaces minus infinity by the lowest finite f32: times a gate of 0 it gives -0 instead of NaN.
Term above_minus_infinity(Term x) { return maximum(x, -kLargest, Ties::kFirst); }

// Computes a formula in f32 or wider and rounds once at the end.
template <class F>
Term in_f32(Term x, F&& formula) {
  return cast(formula(widen(x)), x.dtype());
}

}  // namespace

Term sigmoid(Term x) { return apply(OpKind::kSigmoid, x); }
Term relu(Term x) { return maximum(x, 0, Ties::kSecond); }

Term gelu(Term x, bool tanh_form, AtMinusInfinity at) {
  const Term w = at == AtMinusInfinity::kLimit ? above_minus_infinity(widen(x)) : widen(x);
  // Code generation recognises this difference and avoids its cancellation (Body::normal_argument).
  if (!tanh_form) return cast(w * 0.5 * subtract_from(1, erf(w * (-1 / std::numbers::sqrt2))), x.dtype());
  // (1 + tanh(u)) / 2 = sigmoid(2 u). The sigmoid keeps its relative accuracy where the sum cancels.
  const double k = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2 sqrt(2 / pi)
  return cast(w * sigmoid((w + w * w * w * 0.044715) * k), x.dtype());
}

// log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|)
Term softplus(Term x) {
  const Term w = widen(x);
  return cast(maximum(w, 0) + apply(OpKind::kLog1p, exp(-abs(w))), x.dtype());
}

Term silu(Term x, double alpha, AtMinusInfinity at) {
  const bool limit = alpha > 0 && at == AtMinusInfinity::kLimit;
  const Term w = limit ? above_minus_infinity(widen(x)) : widen(x);
  return cast(w * sigmoid(alpha == 1 ? w : w * alpha), x.dtype());
}

Term scaled_silu(Term x, Operand factor) {
  const Term z = x * factor;
  return z * sigmoid(z);
}

Term scaled_tanh(Term x, double alpha, double beta) { return tanh(x * beta) * alpha; }

Term mish(Term x) {
  return in_f32(x, [](Term w) { return above_minus_infinity(w) * tanh(softplus(w)); });
}

Term softsign(Term x) {
  return in_f32(x, [](Term w) {
    const Term finite = minimum(maximum(w, -kLargest), kLargest);  // infinity / infinity is NaN
    return finite / (abs(finite) + 1.0);
  });
}

Term leaky_relu(Term x, double slope) {
  return in_f32(x, [&](Term w) { return select(less(w, 0), w * slope, w); });
}

Term prelu(Term x, Term slope) {
  slope = unidirectional(slope, x.shape(), "slope");
  return select(less(x, 0), x * slope, x);
}

Term elu(Term x, double alpha) {
  return in_f32(x, [&](Term w) { return select(less(w, 0), apply(OpKind::kExpm1, w) * alpha, w); });
}

Term celu(Term x, double alpha) {
  return in_f32(x,
                [&](Term w) { return maximum(w, 0) + minimum(apply(OpKind::kExpm1, w / alpha) * alpha, 0); });
}

Term selu(Term x, double alpha, double gamma) {
  return in_f32(x, [&](Term w) {
    return select(less_equal(w, 0), apply(OpKind::kExpm1, w) * (alpha * gamma), w * gamma);
  });
}

Term thresholded_relu(Term x, double threshold) { return select(greater(x, threshold), x, 0); }

Term hard_sigmoid(Term x, double alpha, double beta) {
  return in_f32(
      x, [&](Term w) { return minimum(maximum(w * alpha + beta, 0, Ties::kSecond), 1, Ties::kSecond); });
}

Term hard_swish(Term x) {
  return in_f32(x, [](Term w) {
    return w * minimum(maximum(w * (1.0 / 6) + 0.5, 0, Ties::kSecond), 1, Ties::kSecond);
  });
}

Term shrink(Term x, double lambda, double bias) {
  return select(less(x, -lambda), x + bias, select(greater(x, lambda), x - bias, number_like(x, 0)));
}

Term clip(Term x, std::optional<Term> low, std::optional<Term> high) {
  const Shape shape = x.shape();
  if (low) x = maximum(x, unidirectional(*low, shape, "min"), Ties::kSecond);
  if (high) x = minimum(x, unidirectional(*high, shape, "max"), Ties::kSecond);
  return x;
}

Term gelu_gate(Term x) {
  const int64_t last = x.rank() - 1;
  const sym::Expr half = x.builder().simplify(sym::floordiv(x.dim(last), 2));
  return slice(x, last, 0, half) * gelu(slice(x, last, half, half), false);
}

}  // namespace stridec::ops

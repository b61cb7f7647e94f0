#include <limits>
#include <numbers>

#include "compiler/ops/composite.h"

namespace stridec::ops {

using graph::OpKind;

// ---- activations ----

namespace {

// Replaces minus infinity by the lowest finite f32: times a gate of 0 it gives -0 instead of NaN.
Term above_minus_infinity(Term x) { return maximum(x, std::numeric_limits<float>::lowest()); }

}  // namespace

Term sigmoid(Term x) { return apply(OpKind::kSigmoid, x); }
Term relu(Term x) { return maximum(x, 0); }
Term erf(Term x) { return apply(OpKind::kErf, x); }
Term tanh(Term x) { return apply(OpKind::kTanh, x); }
Term pow(Term x, Operand y) { return apply(OpKind::kPow, x, y); }

Term gelu(Term x, bool tanh_form) {
  const Term w = above_minus_infinity(widen(x));
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

Term silu(Term x, double alpha) {
  const Term w = alpha > 0 ? above_minus_infinity(widen(x)) : widen(x);
  return cast(w * sigmoid(alpha == 1 ? w : w * alpha), x.dtype());
}

// ---- normalisations ----

Term softmax(Term x, const Dims& dims) {
  const Term w = widen(x);
  const Term e = exp(w - reduce_max(w, dims, kKeep));
  return cast(e / reduce_sum(e, dims, kKeep), x.dtype());
}

Term log_softmax(Term x, const Dims& dims) {
  const Term w = widen(x);
  const Term shifted = w - reduce_max(w, dims, kKeep);
  return cast(shifted - log(reduce_sum(exp(shifted), dims, kKeep)), x.dtype());
}

Normalized standardize(Term x, const Dims& dims, double epsilon) {
  const Term w = widen(x);
  const Term mean = reduce_mean(w, dims, kKeep);
  const Term centered = w - mean;
  const Term inverse = rsqrt(reduce_mean(square(centered), dims, kKeep) + epsilon);
  return {cast(centered * inverse, x.dtype()), mean, inverse};
}

Term rms_norm(Term x, const Dims& dims, double epsilon) {
  const Term w = widen(x);
  return cast(w * rsqrt(reduce_mean(square(w), dims, kKeep) + epsilon), x.dtype());
}

}  // namespace stridec::ops

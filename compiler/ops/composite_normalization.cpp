#include <numbers>

#include "compiler/ops/composite.h"

namespace stridec::ops {

using graph::OpKind;

// ---- activations ----

Term sigmoid(Term x) { return apply(OpKind::kSigmoid, x); }
Term relu(Term x) { return maximum(x, 0); }
Term erf(Term x) { return apply(OpKind::kErf, x); }
Term tanh(Term x) { return apply(OpKind::kTanh, x); }
Term pow(Term x, Operand y) { return apply(OpKind::kPow, x, y); }

Term gelu(Term x, bool tanh_form) {
  const Term w = widen(x);
  if (!tanh_form) return cast(w * 0.5 * (erf(w * (1 / std::numbers::sqrt2)) + 1.0), x.dtype());
  const double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  const Term inner = (w + w * w * w * 0.044715) * k;
  return cast(w * 0.5 * (tanh(inner) + 1.0), x.dtype());
}

// log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|)
Term softplus(Term x) {
  const Term w = widen(x);
  return cast(maximum(w, 0) + apply(OpKind::kLog1p, exp(-abs(w))), x.dtype());
}

Term silu(Term x, double alpha) {
  const Term w = widen(x);
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

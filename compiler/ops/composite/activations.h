// Activation functions. Narrow floats are computed in f32 and rounded once, unless a comment says otherwise.
// Parameters have no defaults: those of ONNX, PyTorch and onnxruntime differ.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

Term sigmoid(Term x);
Term relu(Term x);
// x times the standard normal distribution function, or its approximation by tanh (Hendrycks and Gimpel 2016,
// arXiv:1606.08415).
// Of minus infinity: -0, which is the limit, or NaN, as the product of the formula is.
enum class AtMinusInfinity { kLimit, kNan };
Term gelu(Term x, bool tanh_form, AtMinusInfinity at = AtMinusInfinity::kLimit);
Term softplus(Term x);  // log(1 + e^x)
// x * sigmoid(alpha x)
Term silu(Term x, double alpha = 1, AtMinusInfinity at = AtMinusInfinity::kLimit);
Term scaled_silu(Term x, Operand factor);             // silu of factor * x, as z * sigmoid(z)
Term scaled_tanh(Term x, double alpha, double beta);  // alpha * tanh(beta x)
Term mish(Term x);                                    // x * tanh(softplus(x))
Term softsign(Term x);                                // x / (1 + |x|); the sign of an infinity

Term leaky_relu(Term x, double slope);                 // slope * x below 0
Term prelu(Term x, Term slope);                        // in x's dtype; the slope broadcasts to x
Term elu(Term x, double alpha);                        // alpha * (e^x - 1) below 0
Term celu(Term x, double alpha);                       // max(x, 0) + min(alpha * (e^(x / alpha) - 1), 0)
Term selu(Term x, double alpha, double gamma);         // gamma * elu(x, alpha)
Term thresholded_relu(Term x, double threshold);       // x above the threshold, else 0
Term hard_sigmoid(Term x, double alpha, double beta);  // alpha * x + beta, clamped to [0, 1]
Term hard_swish(Term x);                               // x * hard_sigmoid(x, 1/6, 1/2)
// x + bias below -lambda, x - bias above lambda, else 0; in x's dtype. bias = lambda: soft shrinkage, 0: hard
// shrinkage.
Term shrink(Term x, double lambda, double bias);

// Clamps x to [low, high]. The bounds broadcast to x and have its dtype; one that is missing has no effect.
// If low exceeds high, the result is high.
Term clip(Term x, std::optional<Term> low, std::optional<Term> high);

// The first half of the last dim times gelu of the second half.
Term gelu_gate(Term x);

}  // namespace stridec::ops

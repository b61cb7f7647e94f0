// Mixture of experts: each token passes through the k experts that its router selects; their results are
// summed with the router's weights. An expert computes only the rows routed to it; their number is a symbol
// bound at run time.
#pragma once

#include <limits>
#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// One layer of all experts. Weights are [experts, out, in], or, quantised to `bits`, [experts, out, in * bits
// / 8] bytes with scales [experts, out] or [experts, out, blocks] and zero points packed like the weights
// (none: the middle of the range).
struct ExpertLayer {
  Term weights;
  std::optional<Term> scales, zeros, bias;  // bias [experts, out]
  int64_t bits = 0;                         // 2, 4 or 8; 0: the weights are not quantised
};

enum class ExpertActivation { kIdentity, kRelu, kGelu, kSilu, kSwiglu };
// Location of SwiGLU's two operands: the third layer, interleaved columns of the first layer, or its two
// halves.
enum class SwigluLayout { kThirdLayer, kInterleaved, kHalves };

struct ExpertOptions {
  int64_t k = 1;           // experts per token
  bool normalize = false;  // scale the selected weights to a sum of 1
  ExpertActivation activation = ExpertActivation::kRelu;
  SwigluLayout swiglu = SwigluLayout::kThirdLayer;
  double alpha = 1, beta = 0;                              // SwiGLU: g * sigmoid(alpha g) * (l + beta)
  double limit = std::numeric_limits<double>::infinity();  // upper bound of g and of |l|
};

// input [..., width] with `tokens` rows, router logits [tokens, experts]. `router_weights` replaces the
// softmax of the logits as the weights of the sum. The result of `third` multiplies the activation (gated
// units). The result has the input's shape and dtype.
Term mixture_of_experts(Term input, Term router, const ExpertLayer& first, const ExpertLayer& second,
                        const std::optional<ExpertLayer>& third, std::optional<Term> router_weights,
                        const ExpertOptions& options);

}  // namespace stridec::ops

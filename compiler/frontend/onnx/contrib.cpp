// Operators of onnxruntime's com.microsoft domain that its optimiser and model builders emit.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/linear_algebra.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/quantization.h"
#include "compiler/ops/composite/window.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";
constexpr size_t kNoInput = 1000;

// Input i, broadcast to x.
Term broadcast_input(const Context& c, size_t i, Term x) {
  return unidirectional(c.in(i), x.shape(), cat("input ", i));
}
Term biased(const Context& c) { return c.has(1) ? c.in(0) + broadcast_input(c, 1, c.in(0)) : c.in(0); }

Outputs op_gelu(Context& c) { return {gelu(biased(c), false)}; }
Outputs fast_gelu(Context& c) { return {gelu(biased(c), true)}; }
Outputs quick_gelu(Context& c) { return {silu(c.in(0), c.number("alpha", 1.702f))}; }
Outputs bias_add(Context& c) {
  return {c.in(0) + broadcast_input(c, 1, c.in(0)) + broadcast_input(c, 2, c.in(0))};
}

Outputs fused_matmul(Context& c) {
  Term a = c.in(0), b = c.in(1);
  // The sequence dim comes before the batch dims.
  const auto batch_first = [](Term x) {
    Dims order;
    for (int64_t d = 1; d < x.rank() - 1; ++d) order.push_back(d);
    order.push_back(0);
    order.push_back(x.rank() - 1);
    return permute(x, order);
  };
  if (c.integer("transBatchA", 0)) a = batch_first(a);
  if (c.integer("transBatchB", 0)) b = batch_first(b);
  if (c.integer("transA", 0)) a = transpose(a, a.rank() - 2, a.rank() - 1);
  if (c.integer("transB", 0)) b = transpose(b, b.rank() - 2, b.rank() - 1);
  const double alpha = c.number("alpha", 1);
  const Term y = matmul(a, b);
  return {alpha == 1 ? y : y * alpha};
}

// Residual addition and normalisation; the sum is output 3.
Outputs skip_layer_norm(Context& c) {
  Term x = c.in(0) + broadcast_input(c, 1, c.in(0));
  if (c.has(4)) x = x + broadcast_input(c, 4, x);
  const Normalized n = layer_norm(x, {x.rank() - 1}, c.in(2), c.optional(3), c.number("epsilon", 1e-12f));
  return {n.value, n.mean, n.inverse_deviation, x};
}
Outputs skip_simplified_layer_norm(Context& c) {
  Term x = c.in(0) + broadcast_input(c, 1, c.in(0));
  if (c.has(3)) x = x + broadcast_input(c, 3, x);
  return {rms_norm(x, {x.rank() - 1}, c.number("epsilon", 1e-5f), c.in(2)), Slot(), Slot(), x};
}

// Sums rows of the word, position and optional segment tables and normalises the sum. `real` dequantises what
// was read from inputs 2 to 6.
template <class Real>
Outputs embedded(Context& c, const Real& real, size_t position_ids) {
  const Term ids = c.in(0);
  Term x = real(2, gather(c.in(2), ids, 0));
  if (c.has(position_ids))
    x = x + real(3, gather(c.in(3), c.in(position_ids), 0));
  else
    x = x + real(3, slice(c.in(3), 0, 0, ids.dim(1)));
  if (c.has(1) && c.has(4)) x = x + real(4, gather(c.in(4), c.in(1), 0));
  const Term scale = real(5, c.in(5)), bias = real(6, c.in(6));
  const Term y = layer_norm(x, {x.rank() - 1}, scale, bias, c.number("epsilon", 1e-12f)).value;
  Outputs out{y};
  if (c.wants(1)) {
    if (!c.has(7)) return {y, filled(c.b, {ids.dim(0)}, DType::kI32, 0), x};
    out.push_back(reduce_sum(c.in(7), {1}));
  } else {
    out.push_back(Slot());
  }
  out.push_back(x);
  return out;
}
Outputs embed_layer_norm(Context& c) {
  return embedded(c, [](size_t, Term t) { return t; }, 8);
}
// Scales are inputs 8 to 12, zero points 13 to 17.
Outputs q_embed_layer_norm(Context& c) {
  const auto real = [&](size_t i, Term t) {
    return dequantize(t, reshape(c.in(i + 6), {}), reshape(c.in(i + 11), {}));
  };
  Outputs out = embedded(c, real, kNoInput);
  out.resize(2);
  return out;
}

// ---- emitted by builders of language models --------------------------------------------------------------

Outputs gemm_fast_gelu(Context& c) {
  const Term y = matmul(c.in(0), c.in(1));
  return {gelu(c.has(2) ? y + broadcast_input(c, 2, y) : y, true)};
}
Outputs scaled_silu(Context& c) {
  const Term x = c.in(0);
  const Term z = c.has(1) ? x * reshape(c.in(1), {}) : x * c.number("alpha", 1);
  return {z * sigmoid(z)};
}
Outputs gated_add(Context& c) { return {c.in(0) + c.in(1) * c.in(2)}; }

Outputs op_gated_rms_norm(Context& c) {
  const std::string activation = c.text("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid")
    c.does_not_fit("activation is '" + activation + "'");
  return {gated_rms_norm(c.in(0), c.in(1), c.in(2), c.number("epsilon", 1e-5f), activation != "sigmoid")};
}

// ---- GEMMs and convolutions with an activation -----------------------------------------------------------

Term activated(const Context& c, Term x, const std::string& kind, double alpha, double beta, bool given) {
  if (kind.empty()) return x;
  if (kind == "Relu") return relu(x);
  if (kind == "Sigmoid") return sigmoid(x);
  if (kind == "Tanh") return tanh(x);
  if (kind == "LeakyRelu") return leaky_relu(x, given ? alpha : 0.01);
  if (kind == "Clip") return clip(x, number_like(x, alpha), number_like(x, beta));
  if (kind == "HardSigmoid") return hard_sigmoid(x, given ? alpha : 0.2, given ? beta : 0.5);
  if (kind == "Gelu") return gelu(x, false);
  if (kind == "QuickGelu") return silu(x, given ? alpha : 1.702);
  c.unsupported("activation '" + kind + "'");
}

Outputs fused_conv(Context& c) {
  Node conv = c.node;
  conv.op_type = "Conv";
  conv.domain = "";
  conv.version = 11;
  conv.inputs.resize(std::min<size_t>(conv.inputs.size(), 3));
  std::vector<Slot> inputs;
  for (size_t i = 0; i < conv.inputs.size(); ++i) inputs.push_back(c.has(i) ? c.slot(i) : Slot());
  Term y(c.b, c.importer().import_as(c, conv, std::move(inputs)).at(0).tensor);
  if (c.has(3)) y = y + broadcast_input(c, 3, y);
  std::vector<double> p = c.numbers("activation_params");
  const bool given = !p.empty();
  p.resize(2, 0);
  return {activated(c, y, c.text("activation", ""), p[0], p[1], given)};
}

Outputs fused_gemm(Context& c) {
  Node gemm = c.node;
  gemm.op_type = "Gemm";
  gemm.domain = "";
  gemm.version = 13;
  std::vector<Slot> inputs;
  for (size_t i = 0; i < gemm.inputs.size(); ++i) inputs.push_back(c.has(i) ? c.slot(i) : Slot());
  const Term y(c.b, c.importer().import_as(c, gemm, std::move(inputs)).at(0).tensor);
  return {activated(c, y, c.text("activation", ""), c.number("activation_alpha", 0),
                    c.number("activation_beta", 0), c.has_attribute("activation_alpha"))};
}

Outputs inverse(Context& c) { return {ops::inverse(c.in(0))}; }

// ---- Stable Diffusion ------------------------------------------------------------------------------------

Outputs group_norm_of(Context& c, Term x) {
  const bool last = c.integer("channels_last", 1) != 0;
  const Term w = last ? channels_second(widen(x)) : widen(x);
  Term y =
      group_norm(w, c.in(1), c.in(2), {.groups = c.integer("groups"), .epsilon = c.number("epsilon", 1e-5f)});
  if (c.integer("activation", 0)) y = silu(y);
  return {cast(last ? channels_last(y) : y, x.dtype()), x};
}
Outputs op_group_norm(Context& c) { return {group_norm_of(c, c.in(0)).at(0)}; }
Outputs skip_group_norm(Context& c) {
  Term skip = c.in(3);
  if (skip.rank() == 2) skip = reshape(skip, {skip.dim(0), 1, 1, skip.dim(1)});
  const Term x = c.in(0) + unidirectional(skip, c.in(0).shape(), "skip");
  return group_norm_of(c, c.has(4) ? x + broadcast_input(c, 4, x) : x);
}

Outputs bias_split_gelu(Context& c) { return {gelu_gate(c.in(0) + broadcast_input(c, 1, c.in(0)))}; }

constexpr Row kRows[] = {
    {"BiasAdd", bias_add, 1, kAnyLater, kMicrosoft},
    {"BiasSplitGelu", bias_split_gelu, 1, kAnyLater, kMicrosoft},
    {"BiasGelu", op_gelu, 1, kAnyLater, kMicrosoft},
    {"EmbedLayerNormalization", embed_layer_norm, 1, kAnyLater, kMicrosoft},
    {"QEmbedLayerNormalization", q_embed_layer_norm, 1, kAnyLater, kMicrosoft},
    {"GatedAdd", gated_add, 1, kAnyLater, kMicrosoft},
    {"GatedRMSNorm", op_gated_rms_norm, 1, kAnyLater, kMicrosoft},
    {"GemmFastGelu", gemm_fast_gelu, 1, kAnyLater, kMicrosoft},
    {"ScaledSiLU", scaled_silu, 1, kAnyLater, kMicrosoft},
    {"FastGelu", fast_gelu, 1, kAnyLater, kMicrosoft},
    {"FusedConv", fused_conv, 1, kAnyLater, kMicrosoft},
    {"FusedGemm", fused_gemm, 1, kAnyLater, kMicrosoft},
    {"FusedMatMul", fused_matmul, 1, kAnyLater, kMicrosoft},
    {"TransposeMatMul", fused_matmul, 1, kAnyLater, kMicrosoft},
    {"GroupNorm", op_group_norm, 1, kAnyLater, kMicrosoft},
    {"Inverse", inverse, 1, kAnyLater, kMicrosoft},
    {"SkipGroupNorm", skip_group_norm, 1, kAnyLater, kMicrosoft},
    {"Gelu", op_gelu, 1, kAnyLater, kMicrosoft},
    {"QuickGelu", quick_gelu, 1, kAnyLater, kMicrosoft},
    {"SkipLayerNormalization", skip_layer_norm, 1, kAnyLater, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", skip_simplified_layer_norm, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_rows() { return kRows; }

}  // namespace stridec::onnx

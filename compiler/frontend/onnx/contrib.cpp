// Operators of onnxruntime's com.microsoft domain that its optimiser and model builders emit.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/arithmetic.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/embedding.h"
#include "compiler/ops/composite/linear_algebra.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/window.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

Term plus_required(const Context& c, Term x, size_t i) { return add_parameter(x, c.in(i), cat("input ", i)); }
// x plus input i, or x if there is none.
Term plus_input(const Context& c, Term x, size_t i) { return c.has(i) ? plus_required(c, x, i) : x; }

Outputs op_gelu(Context& c) { return {gelu(plus_input(c, c.in(0), 1), false)}; }
Outputs fast_gelu(Context& c) { return {gelu(plus_input(c, c.in(0), 1), true)}; }
Outputs quick_gelu(Context& c) { return {silu(c.in(0), c.number("alpha", 1.702f))}; }
Outputs bias_add(Context& c) { return {add_bias_and_skip(c.in(0), c.in(1), "input 1", c.in(2), "input 2")}; }

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
  return {scaled_matmul(a, b, c.number("alpha", 1))};
}

// Residual addition and normalisation; the sum is output 3.
Outputs skip_layer_norm(Context& c) {
  const Term x = plus_input(c, plus_required(c, c.in(0), 1), 4);
  const Normalized n = layer_norm(x, {x.rank() - 1}, c.in(2), c.optional(3), c.number("epsilon", 1e-12f));
  return {n.value, n.mean, n.inverse_deviation, x};
}
Outputs skip_simplified_layer_norm(Context& c) {
  const Term x = plus_input(c, plus_required(c, c.in(0), 1), 3);
  return {rms_norm(x, {x.rank() - 1}, c.number("epsilon", 1e-5f), c.in(2)), Slot(), Slot(), x};
}

// Parameter i of an embedding layer; `quantized`: its scale is input i + 6, its zero point input i + 11.
EmbeddingParameter embedding_parameter(const Context& c, size_t i, bool quantized) {
  if (!quantized) return {.value = c.in(i), .scale = {}, .zero = {}};
  return {.value = c.in(i), .scale = c.in(i + 6), .zero = c.in(i + 11)};
}

Embedded embedded(const Context& c, std::optional<Term> positions, bool quantized) {
  EmbeddingLayer layer{.words = embedding_parameter(c, 2, quantized),
                       .positions = embedding_parameter(c, 3, quantized),
                       .segments = {},
                       .scale = embedding_parameter(c, 5, quantized),
                       .bias = embedding_parameter(c, 6, quantized),
                       .epsilon = c.number("epsilon", 1e-12f)};
  if (c.has(1) && c.has(4)) layer.segments = embedding_parameter(c, 4, quantized);
  return embed({.words = c.in(0), .positions = positions, .segments = c.optional(1)}, layer);
}

Outputs embed_layer_norm(Context& c) {
  const Embedded y = embedded(c, c.optional(8), false);
  const Slot lengths = c.wants(1) ? Slot(mask_lengths(c.b, c.optional(7), c.in(0).dim(0))) : Slot();
  return {y.value, lengths, y.sum};
}
Outputs q_embed_layer_norm(Context& c) {
  const Embedded y = embedded(c, std::nullopt, true);
  return {y.value, c.wants(1) ? Slot(mask_lengths(c.b, c.optional(7), c.in(0).dim(0))) : Slot()};
}

// ---- emitted by builders of language models --------------------------------------------------------------

Outputs gemm_fast_gelu(Context& c) {
  const Term y = matmul(c.in(0), c.in(1));
  return {gelu(plus_input(c, y, 2), true)};
}
Outputs op_scaled_silu(Context& c) {
  const Term x = c.in(0);
  return {scaled_silu(x, c.has(1) ? Operand(reshape(c.in(1), {})) : Operand(c.number("alpha", 1)))};
}
Outputs op_gated_add(Context& c) { return {gated_add(c.in(0), c.in(1), c.in(2))}; }

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
  const Term y(c.b, c.importer().import_as(c, conv, std::move(inputs)).at(0).tensor);
  std::vector<double> p = c.numbers("activation_params");
  const bool given = !p.empty();
  p.resize(2, 0);
  return {activated(c, plus_input(c, y, 3), c.text("activation", ""), p[0], p[1], given)};
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
  return group_norm_of(c, plus_input(c, add_parameter(c.in(0), skip, "skip"), 4));
}

Outputs bias_split_gelu(Context& c) { return {gelu_gate(plus_required(c, c.in(0), 1))}; }

constexpr Row kRows[] = {
    {"BiasAdd", bias_add, 1, kAnyLater, kMicrosoft},
    {"BiasSplitGelu", bias_split_gelu, 1, kAnyLater, kMicrosoft},
    {"BiasGelu", op_gelu, 1, kAnyLater, kMicrosoft},
    {"EmbedLayerNormalization", embed_layer_norm, 1, kAnyLater, kMicrosoft},
    {"QEmbedLayerNormalization", q_embed_layer_norm, 1, kAnyLater, kMicrosoft},
    {"GatedAdd", op_gated_add, 1, kAnyLater, kMicrosoft},
    {"GatedRMSNorm", op_gated_rms_norm, 1, kAnyLater, kMicrosoft},
    {"GemmFastGelu", gemm_fast_gelu, 1, kAnyLater, kMicrosoft},
    {"ScaledSiLU", op_scaled_silu, 1, kAnyLater, kMicrosoft},
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

// Mixture of experts: MoE and QMoE of onnxruntime's com.microsoft domain (ops/mixture_of_experts.h).
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/mixture_of_experts.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

ExpertActivation activation_of(const Context& c) {
  const std::string kind = c.text("activation_type", "relu");
  if (kind == "relu") return ExpertActivation::kRelu;
  if (kind == "gelu") return ExpertActivation::kGelu;
  if (kind == "silu") return ExpertActivation::kSilu;
  if (kind == "swiglu") return ExpertActivation::kSwiglu;
  if (kind == "identity") return ExpertActivation::kIdentity;
  c.does_not_fit("activation_type is '" + kind + "'");
}

Outputs mixture(const Context& c, const ExpertLayer& first, const ExpertLayer& second,
                const std::optional<ExpertLayer>& third, std::optional<Term> router_weights) {
  if (c.integer("use_sparse_mixer", 0)) c.unsupported("MoE with the sparse mixer");
  const int64_t fusion = c.integer("swiglu_fusion", 0);
  const ExpertOptions options{.k = c.integer("k", 1),
                              .normalize = c.integer("normalize_routing_weights", 0) != 0,
                              .activation = activation_of(c),
                              .swiglu = fusion == 0   ? SwigluLayout::kThirdLayer
                                        : fusion == 2 ? SwigluLayout::kHalves
                                                      : SwigluLayout::kInterleaved,
                              .alpha = c.number("activation_alpha", 1),
                              .beta = c.number("activation_beta", 0),
                              .limit = c.number("swiglu_limit", std::numeric_limits<double>::infinity())};
  if (options.activation == ExpertActivation::kSwiglu && fusion == 0 && !third)
    c.does_not_fit("swiglu without fusion needs fc3 weights");
  return {mixture_of_experts(c.in(0), c.in(1), first, second, third, router_weights, options)};
}

Outputs moe(Context& c) {
  std::optional<ExpertLayer> third;
  if (c.has(6)) third = ExpertLayer{.weights = c.in(6), .bias = c.optional(7)};
  return mixture(c, {.weights = c.in(2), .bias = c.optional(3)}, {.weights = c.in(4), .bias = c.optional(5)},
                 third, std::nullopt);
}

Outputs qmoe(Context& c) {
  if (c.text("quant_type", "int") != "int")
    c.unsupported("QMoE with quant_type '" + c.text("quant_type", "") + "'");
  if (c.integer("weights_prepacked", 0) > 0) c.unsupported("QMoE with weights packed for one device");
  const int64_t bits = c.integer("expert_weight_bits", 4);
  const auto layer = [&](size_t weights, size_t zeros, const char* own_bits) {
    const int64_t width = c.integer(own_bits, bits);
    if (width != 2 && width != 4 && width != 8) c.unsupported(cat("weights of ", width, " bits"));
    return ExpertLayer{.weights = c.in(weights),
                       .scales = c.in(weights + 1),
                       .zeros = c.optional(zeros),
                       .bias = c.optional(weights + 2),
                       .bits = width};
  };
  std::optional<ExpertLayer> third;
  if (c.has(8)) third = layer(8, 13, "fc3_expert_weight_bits");
  return mixture(c, layer(2, 11, "fc1_expert_weight_bits"), layer(5, 12, "fc2_expert_weight_bits"), third,
                 c.optional(14));
}

constexpr Row kRows[] = {
    {"MoE", moe, 1, kAnyLater, kMicrosoft},
    {"QMoE", qmoe, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_moe_rows() { return kRows; }

}  // namespace stridec::onnx

// Mixtures of experts: MoE and QMoE of onnxruntime's own domain.
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/quantization.h"
#include "compiler/ops/composite.h"
#include "compiler/ops/helpers.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

// One of the layers of all experts: weights [experts, out, in] as the file has them, and what goes with them.
struct Layer {
  Term weights;
  std::optional<Term> scales, zeros, bias;
  int64_t bits = 0;  // 0: plain numbers
};

// rows [m, in] times expert e's weights, plus its bias: [m, out].
Term apply_layer(const Context& c, const Layer& layer, Term rows, sym::Expr e) {
  const auto of_expert = [&](Term t) { return squeeze(slice(t, 0, e, 1), {0}); };
  Term w = of_expert(layer.weights);
  if (layer.bits) {
    const Term codes = cast(unpack(w, layer.bits), DType::kF32);  // [out, in]
    const Term scale = cast(of_expert(*layer.scales), DType::kF32);
    const sym::Expr out = codes.dim(0), in = codes.dim(1),
                    blocks = scale.rank() == 2 ? scale.dim(1) : sym::Expr(1);
    Term zero = c.number(DType::kF32, static_cast<double>(1 << (layer.bits - 1)));
    if (layer.zeros) {
      const Term z = unpack(of_expert(*layer.zeros), layer.bits);
      zero = cast(scale.rank() == 2 ? unsqueeze(slice(z, 1, 0, blocks), {2})
                                    : reshape(slice(z, 0, 0, out), {out, 1, 1}),
                  DType::kF32);
    }
    const sym::Expr block = c.b.simplify(sym::floordiv(in, blocks));
    c.b.require(sym::eq(block * blocks, in), "{0} columns do not divide into {1} blocks", {in, blocks});
    w = reshape((reshape(codes, {out, blocks, block}) - zero) * reshape(scale, {out, blocks, 1}), {out, in});
  } else {
    w = cast(w, DType::kF32);
  }
  Term y = matmul(rows, transpose(w, 0, 1));
  if (layer.bias) y = y + cast(of_expert(*layer.bias), DType::kF32);
  return y;
}

Term gated(const Context& c, Term g, Term l) {
  const double limit = c.number("swiglu_limit", std::numeric_limits<double>::infinity());
  if (limit < std::numeric_limits<double>::infinity()) {
    g = minimum(g, limit);
    l = minimum(maximum(l, -limit), limit);
  }
  return g * sigmoid(g * c.number("activation_alpha", 1)) * (l + c.number("activation_beta", 0));
}

// Between the layers: [m, out of the first] to [m, in of the second].
Term activate(const Context& c, Term h, const std::optional<Term>& other) {
  const std::string kind = c.text("activation_type", "relu");
  if (kind == "swiglu") {
    const int64_t fusion = c.integer("swiglu_fusion", 0);
    if (fusion == 0) {
      if (!other) c.does_not_fit("swiglu without fusion needs fc3 weights");
      return gated(c, h, *other);
    }
    const sym::Expr half = c.b.simplify(sym::floordiv(h.dim(1), 2));
    if (fusion == 2) return gated(c, slice(h, 1, 0, half), slice(h, 1, half, half));
    const Term pairs = reshape(h, {h.dim(0), half, 2});
    return gated(c, squeeze(slice(pairs, 2, 0, 1), {2}), squeeze(slice(pairs, 2, 1, 1), {2}));
  }
  Term y = h;
  if (kind == "relu")
    y = relu(h);
  else if (kind == "gelu")
    y = gelu(h, false);
  else if (kind == "silu")
    y = silu(h);
  else if (kind != "identity")
    c.does_not_fit("activation_type is '" + kind + "'");
  return other ? y * *other : y;
}

// Each expert works on the rows that chose it: their number is a symbol of the run, and an expert without rows
// costs nothing.
Term mixture(const Context& c, const Layer& first, const Layer& second, const std::optional<Layer>& third,
             std::optional<Term> router_weights) {
  Builder& b = c.b;
  const Term input = c.in(0), router = cast(c.in(1), DType::kF32);
  const sym::Expr tokens = router.dim(0), experts = router.dim(1), width = input.dim(input.rank() - 1);
  if (c.integer("use_sparse_mixer", 0)) c.unsupported("MoE with the sparse mixer");
  const Term x = cast(reshape(input, {tokens, width}), DType::kF32);
  const auto top =
      b.add(OpKind::kTopK, {router.id()},
            {{"dim", int64_t{1}}, {"k", c.integer("k", 1)}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}});
  const Term chosen(b, top[1]);  // [tokens, k]
  const bool normalise = c.integer("normalize_routing_weights", 0) != 0;
  const auto picked = [&](Term t) {
    return Term(b, b.add1(OpKind::kGatherElements, {t.id(), chosen.id()}, {{"dim", int64_t{1}}}));
  };
  Term share = router_weights ? picked(cast(*router_weights, DType::kF32))
               : normalise    ? softmax(Term(b, top[0]), {1})
                              : picked(softmax(router, {1}));
  if (router_weights && normalise) share = share / reduce_sum(share, {1}, kKeep);
  const LoopResult result = loop(
      b, experts, std::nullopt, {filled(b, {tokens, width}, DType::kF32, 0).id()},
      [&](const LoopState& state) {
        const Term sum(b, state.carried[0]), e(b, state.counter_value);
        const Term hit = equal(chosen, e);
        const Term takes = reduce(OpKind::kReduceOr, hit, {1});
        const sym::Expr m = b.fresh_symbol("rows", 0, tokens);
        const Term rows = reshape(Term(b, b.add1(OpKind::kNonZero, {takes.id()}, {{"count", m}})), {m});
        const ValueId any = b.elements({sym::gt(m, 0)}, {}, DType::kBool);
        const auto work = [&] {
          const Term mine = gather(x, rows, 0);
          const Term h = apply_layer(c, first, mine, state.counter);
          const auto other =
              third ? std::optional(apply_layer(c, *third, mine, state.counter)) : std::nullopt;
          const Term y = apply_layer(c, second, activate(c, h, other), state.counter);
          const Term part = gather(reduce_sum(select(hit, share, 0), {1}), rows, 0);
          const Term weighted = y * unsqueeze(part, {1});
          const Term index = expand(unsqueeze(rows, {1}), weighted.shape());
          return std::vector<ValueId>{b.add1(OpKind::kScatterElements, {sum.id(), index.id(), weighted.id()},
                                             {{"dim", int64_t{0}}, {"reduction", std::string("add")}})};
        };
        return LoopStep{.condition = std::nullopt,
                        .carried = if_else(b, any, work, [&] { return std::vector<ValueId>{sum.id()}; }),
                        .stacked = {}};
      });
  return cast(reshape(Term(b, result.carried[0]), input.shape()), input.dtype());
}

Outputs moe(Context& c) {
  std::optional<Layer> third;
  if (c.has(6)) third = Layer{.weights = c.in(6), .bias = c.optional(7)};
  return {mixture(c, {.weights = c.in(2), .bias = c.optional(3)}, {.weights = c.in(4), .bias = c.optional(5)},
                  third, std::nullopt)};
}

Outputs qmoe(Context& c) {
  if (c.text("quant_type", "int") != "int")
    c.unsupported("QMoE with quant_type '" + c.text("quant_type", "") + "'");
  if (c.integer("weights_prepacked", 0) > 0) c.unsupported("QMoE with weights packed for one device");
  const int64_t bits = c.integer("expert_weight_bits", 4);
  const auto layer = [&](size_t weights, size_t zeros, const char* own_bits) {
    const int64_t width = c.integer(own_bits, bits);
    if (width != 2 && width != 4 && width != 8) c.unsupported(cat("weights of ", width, " bits"));
    return Layer{.weights = c.in(weights),
                 .scales = c.in(weights + 1),
                 .zeros = c.optional(zeros),
                 .bias = c.optional(weights + 2),
                 .bits = width};
  };
  std::optional<Layer> third;
  if (c.has(8)) third = layer(8, 13, "fc3_expert_weight_bits");
  return {mixture(c, layer(2, 11, "fc1_expert_weight_bits"), layer(5, 12, "fc2_expert_weight_bits"), third,
                  c.optional(14))};
}

constexpr Row kRows[] = {
    {"MoE", moe, 1, kAnyLater, kMicrosoft},
    {"QMoE", qmoe, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_moe_rows() { return kRows; }

}  // namespace stridec::onnx

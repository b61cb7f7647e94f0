#include "compiler/ops/composite/mixture_of_experts.h"

#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/quantization.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/region.h"

namespace stridec::ops {
namespace {

using graph::OpKind;

Term of_expert(Term all, sym::Expr e) { return squeeze(slice(all, 0, e, 1), {0}); }

// The weights [out, in] of expert e, dequantised to f32.
Term expert_weights(const ExpertLayer& layer, sym::Expr e) {
  const Term w = of_expert(layer.weights, e);
  if (!layer.bits) return cast(w, DType::kF32);
  graph::Builder& b = w.builder();
  const Term codes = cast(unpack(w, layer.bits), DType::kF32);
  const Term scale = cast(of_expert(*layer.scales, e), DType::kF32);
  const sym::Expr out = codes.dim(0), in = codes.dim(1),
                  blocks = scale.rank() == 2 ? scale.dim(1) : sym::Expr(1);
  Term zero = number(b, DType::kF32, static_cast<double>(1 << (layer.bits - 1)));
  if (layer.zeros) {
    const Term z = unpack(of_expert(*layer.zeros, e), layer.bits);
    zero = cast(scale.rank() == 2 ? unsqueeze(slice(z, 1, 0, blocks), {2})
                                  : reshape(slice(z, 0, 0, out), {out, 1, 1}),
                DType::kF32);
  }
  const sym::Expr block = b.simplify(sym::floordiv(in, blocks));
  b.require(sym::eq(block * blocks, in), "{0} columns do not divide into {1} blocks", {in, blocks});
  return reshape((reshape(codes, {out, blocks, block}) - zero) * reshape(scale, {out, blocks, 1}), {out, in});
}

// rows [m, in] times the transposed weights of expert e, plus its bias: [m, out].
Term apply_layer(const ExpertLayer& layer, Term rows, sym::Expr e) {
  const Term y = matmul(rows, transpose(expert_weights(layer, e), 0, 1));
  return layer.bias ? y + cast(of_expert(*layer.bias, e), DType::kF32) : y;
}

Term swiglu(Term g, Term l, const ExpertOptions& options) {
  if (options.limit < std::numeric_limits<double>::infinity()) {
    g = minimum(g, options.limit);
    l = minimum(maximum(l, -options.limit), options.limit);
  }
  return g * sigmoid(g * options.alpha) * (l + options.beta);
}

// The activation between the layers: [m, out of the first] to [m, in of the second].
Term activate(Term h, const std::optional<Term>& other, const ExpertOptions& options) {
  if (options.activation == ExpertActivation::kSwiglu) {
    if (options.swiglu == SwigluLayout::kThirdLayer) return swiglu(h, *other, options);
    const sym::Expr half = h.builder().simplify(sym::floordiv(h.dim(1), 2));
    if (options.swiglu == SwigluLayout::kHalves)
      return swiglu(slice(h, 1, 0, half), slice(h, 1, half, half), options);
    const Term pairs = reshape(h, {h.dim(0), half, 2});
    return swiglu(squeeze(slice(pairs, 2, 0, 1), {2}), squeeze(slice(pairs, 2, 1, 1), {2}), options);
  }
  Term y = h;
  switch (options.activation) {
    case ExpertActivation::kRelu: y = relu(h); break;
    case ExpertActivation::kGelu: y = gelu(h, false); break;
    case ExpertActivation::kSilu: y = silu(h); break;
    default: break;
  }
  return other ? y * *other : y;
}

}  // namespace

Term mixture_of_experts(Term input, Term router, const ExpertLayer& first, const ExpertLayer& second,
                        const std::optional<ExpertLayer>& third, std::optional<Term> router_weights,
                        const ExpertOptions& options) {
  graph::Builder& b = input.builder();
  const Term logits = cast(router, DType::kF32);
  const sym::Expr tokens = logits.dim(0), experts = logits.dim(1), width = input.dim(input.rank() - 1);
  const Term x = cast(reshape(input, {tokens, width}), DType::kF32);
  const Ordered top = top_k(logits, 1, options.k);
  const Term chosen = top.indices;  // [tokens, k]
  const auto picked = [&](Term t) { return gather_elements(t, chosen, 1); };
  Term share = router_weights      ? picked(cast(*router_weights, DType::kF32))
               : options.normalize ? softmax(top.values, {1})
                                   : picked(softmax(logits, {1}));
  if (router_weights && options.normalize) share = share / reduce_sum(share, {1}, kKeep);
  const LoopResult result = loop(
      b, experts, std::nullopt, {filled(b, {tokens, width}, DType::kF32, 0).id()},
      [&](const LoopState& state) {
        const Term sum(b, state.carried[0]), e(b, state.counter_value);
        const Term hit = equal(chosen, e);
        const Term takes = reduce(OpKind::kReduceOr, hit, {1});
        const sym::Expr m = b.fresh_symbol("rows", 0, tokens);
        const Term rows = reshape(coordinates(takes, m), {m});
        const graph::ValueId any = b.elements({sym::gt(m, 0)}, {}, DType::kBool);
        const auto work = [&] {
          const Term mine = gather(x, rows, 0);
          const Term h = apply_layer(first, mine, state.counter);
          const auto other = third ? std::optional(apply_layer(*third, mine, state.counter)) : std::nullopt;
          const Term y = apply_layer(second, activate(h, other, options), state.counter);
          const Term part = gather(reduce_sum(select(hit, share, 0), {1}), rows, 0);
          const Term weighted = y * unsqueeze(part, {1});
          const Term index = expand(unsqueeze(rows, {1}), weighted.shape());
          return std::vector<graph::ValueId>{scatter_elements(sum, index, weighted, 0, "add").id()};
        };
        return LoopStep{
            .condition = std::nullopt,
            .carried = if_else(b, any, work, [&] { return std::vector<graph::ValueId>{sum.id()}; }),
            .stacked = {}};
      });
  return cast(reshape(Term(b, result.carried[0]), input.shape()), input.dtype());
}

}  // namespace stridec::ops

#include "compiler/ops/composite/random.h"

#include <algorithm>
#include <numbers>

#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

Term uniform(Builder& b, const Shape& shape, double low, double high, DType dtype, int64_t seed) {
  return cast(random_uniform(b, shape, DType::kF32, seed) * (high - low) + low, dtype);
}

Term normal(Builder& b, const Shape& shape, double mean, double deviation, DType dtype, int64_t seed) {
  const Term radius = sqrt(log(subtract_from(1, random_uniform(b, shape, DType::kF32, seed))) * -2.0);
  const Term angle =
      apply(OpKind::kCos, random_uniform(b, shape, DType::kF32, seed + 1) * (2 * std::numbers::pi));
  return cast(radius * angle * deviation + mean, dtype);
}

Term bernoulli(Term x, DType dtype, int64_t seed) {
  const Term drawn = random_uniform(x.builder(), x.shape(), DType::kF32, seed);
  return cast(less(drawn, cast(x, DType::kF32)), dtype);
}

// Inverse transform sampling: the first class whose cumulative share exceeds a uniform random number.
Term multinomial(Term given, int64_t samples, DType dtype, int64_t seed) {
  if (samples < 1) does_not_fit(cat("sample_size is ", samples));
  const Term x = widen(given);
  const Term weights = exp(x - reduce_max(x, {1}, kKeep));
  const Term sums = cumulative_sum(weights, 1);
  const Term total = slice(sums, 1, x.dim(1) - 1, 1);
  const Term share = random_uniform(x.builder(), {x.dim(0), samples}, DType::kF32, seed);
  const Term drawn = cast(share, x.dtype()) * total;
  const Term below = less_equal(unsqueeze(sums, {1}), unsqueeze(drawn, {2}));  // [rows, samples, classes]
  return cast(reduce_sum(cast(below, DType::kI64), {2}), dtype);
}

Dropout dropout(Term x, Term ratio, std::optional<Term> training, const DropoutOptions& options) {
  const Term noise = random_uniform(x.builder(), x.shape(), DType::kF64, options.seed,
                                    options.mersenne ? "mersenne" : "philox");
  Term kept = greater_equal(noise, ratio), scale = divide_into(1, subtract_from(1, ratio));
  if (training) {
    const Term off = logical_not(*training);
    kept = logical_or(kept, off);
    scale = select(off, 1, scale);
  }
  const Term w = widen(x);
  return {cast(select(kept, w * cast(scale, w.dtype()), 0), x.dtype()), kept};
}

namespace {

bool draws(const graph::Graph& graph, const graph::Node& node) {
  if (node.kind == OpKind::kRandomUniform) return true;
  return std::ranges::any_of(node.regions, [&](const graph::Region& region) {
    return std::ranges::any_of(region.nodes, [&](graph::NodeId id) { return draws(graph, graph[id]); });
  });
}

}  // namespace

const graph::Node* loop_with_draws(const graph::Graph& graph) {
  for (const graph::Node& node : graph.nodes)
    if (node.kind == OpKind::kLoop && draws(graph, node)) return &node;
  return nullptr;
}

void advance_generator(Builder& b) {
  std::optional<Term> offset;
  for (const graph::State& state : b.graph().states)
    if (state.name == kGenerator) offset = Term(b, state.value);
  const bool advances = offset.has_value();
  for (graph::Node& node : b.graph().nodes) {
    if (node.kind != OpKind::kRandomUniform || !node.inputs.empty() ||
        node.attributes.text_or("generator", "philox") == "mersenne")
      continue;
    if (!offset) offset = Term(b, b.state(kGenerator, {DType::kI64, {}}, std::nullopt));
    node.inputs = {offset->id()};
  }
  if (offset && !advances) b.add(OpKind::kUpdateState, {*offset, *offset + 1.0});
}

}  // namespace stridec::ops

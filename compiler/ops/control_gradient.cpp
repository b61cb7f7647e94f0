// Gradients through if and loop. The regions' intermediate values are not visible outside, so the regions are
// computed again: a branch from what it captures, an iteration from the values that it started with and from
// the results of its products, which the loop stacks for this purpose.
#include "compiler/ops/control_gradient.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ops/copy_nodes.h"
#include "compiler/ops/region.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::Region;

namespace {

// `gradient`, or zeros if it is none, as a tensor of the shape.
ValueId of_type(Builder& b, ValueId gradient, const Type& type) {
  return gradient.valid() ? reshape(Term(b, gradient), type.shape).id()
                          : filled(b, type.shape, type.dtype, 0).id();
}

}  // namespace

Ids if_gradient(Backward& backward, const Node& node, const Ids& outputs, const Ids& wanted) {
  Builder& b = backward.builder();
  const sym::Expr condition = node.attributes.expr("condition");
  std::vector<Region> regions;
  for (const bool first : {true, false}) {
    const Region& branch = node.regions[first ? 0 : 1];
    OpenRegion region(b, {}, first ? condition : sym::logical_not(condition));
    NodeCopier copier(b);
    copier.copy(branch.nodes);
    Ids ys, cotangents;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].valid()) continue;
      ys.push_back(copier.at(branch.results[i]));
      cotangents.push_back(of_type(b, outputs[i], b.type(ys.back())));
    }
    Ids results = backward.pull_back(ys, cotangents, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) results[i] = of_type(b, results[i], b.type(wanted[i]));
    regions.push_back(region.close(std::move(results)));
  }
  return b.add_with_regions(OpKind::kIf, {}, {{"condition", condition}}, std::move(regions));
}

namespace {

// The parts of a loop node. A carried value that no iteration changes counts as captured.
struct LoopParts {
  const Node& node;
  const Region& body;
  size_t first, carried;
  sym::Expr rows;

  explicit LoopParts(const Node& loop)
      : node(loop),
        body(loop.regions[0]),
        first(loop.attributes.integer("has_condition") != 0 ? 1 : 0),
        carried(body.parameters.size()),
        rows(loop.attributes.expr(first ? "iterations" : "trip_count")) {}

  ValueId start(size_t i) const { return node.inputs[first + i]; }
  ValueId result(size_t i) const { return body.results[first + i]; }
  bool changes(size_t i) const { return result(i) != body.parameters[i]; }
};

// The carried values through which gradients flow to `wanted`.
std::vector<size_t> active(Builder& b, const LoopParts& loop, const Ids& wanted) {
  Ids sources = wanted;
  std::vector<size_t> out;
  for (bool grew = true; grew;) {
    grew = false;
    const std::unordered_set<ValueId> depends = dependent(b.graph(), loop.body.nodes, sources);
    for (size_t i = 0; i < loop.carried; ++i) {
      if (!is_float(b.dtype(loop.start(i))) || !loop.changes(i) ||
          std::find(out.begin(), out.end(), i) != out.end())
        continue;
      if (!depends.contains(loop.start(i)) && !depends.contains(loop.result(i))) continue;
      out.push_back(i);
      sources.push_back(loop.body.parameters[i]);
      grew = true;
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// What a value of the body is in each iteration: a stacked result that the loop gets unless it has it.
ValueId stack_of(Builder& b, const LoopParts& loop, ValueId inside) {
  for (size_t r = loop.first + loop.carried; r < loop.body.results.size(); ++r)
    if (loop.body.results[r] == inside) return loop.node.outputs[r - loop.first];
  graph::Graph& g = b.graph();
  Node& node = g[g[loop.node.outputs[0]].producer];
  const ValueId stack(static_cast<int64_t>(g.values.size()));
  g.values.emplace_back();
  g[stack].type = b.type(inside);
  g[stack].type.shape.insert(g[stack].type.shape.begin(), loop.rows);
  g[stack].producer = g[loop.node.outputs[0]].producer;
  g[stack].output = static_cast<int>(node.outputs.size());
  graph::check_size(g[stack].type);
  node.outputs.push_back(stack);
  node.regions[0].results.push_back(inside);
  return stack;
}

// The results of the body's products, which are not computed again.
std::vector<std::pair<ValueId, ValueId>> product_stacks(Builder& b, const LoopParts& loop) {
  Ids products;
  for (graph::NodeId id : loop.body.nodes) {
    const Node& node = b.graph()[id];
    if (node.kind != OpKind::kDotGeneral && node.kind != OpKind::kConv) continue;
    const graph::Shape& shape = b.shape(node.outputs[0]);
    if (std::ranges::none_of(shape, [&](sym::Expr dim) { return b.is_bound_in_run(dim); }))
      products.push_back(node.outputs[0]);
  }
  std::vector<std::pair<ValueId, ValueId>> out;
  for (ValueId product : products) out.emplace_back(product, stack_of(b, loop, product));
  return out;
}

Term row_of(Builder& b, ValueId stack, sym::Expr at) { return squeeze(slice(Term(b, stack), 0, at, 1), {0}); }

// A gradient that each iteration computes as a product, perhaps permuted.
struct GradientProduct {
  size_t captured;  // position of the value that it is the gradient of
  Node node;
  std::optional<Node> permuted;
};

// The product that `gradient` is, of two factors that the iteration makes: values from number `first` on.
std::optional<GradientProduct> product_of(const graph::Graph& g, ValueId gradient, size_t captured,
                                          int64_t first) {
  const auto producer = [&](ValueId v) {
    const graph::NodeId id = g[v].producer;
    return id.valid() && v.value >= first ? &g[id] : nullptr;
  };
  const Node* node = producer(gradient);
  const Node* permuted = node && node->kind == OpKind::kPermute ? node : nullptr;
  if (permuted) node = producer(permuted->inputs[0]);
  if (!node || node->kind != OpKind::kDotGeneral || !producer(node->inputs[0]) || !producer(node->inputs[1]))
    return std::nullopt;
  return GradientProduct{captured, *node, permuted ? std::optional(*permuted) : std::nullopt};
}

// The sum over all iterations, from the stacked factors: one product whose depth has the iterations as well.
Term sum_of_products(Builder& b, const GradientProduct& product, ValueId first, ValueId second) {
  graph::Attributes attributes = product.node.attributes;
  for (const char* name : {"batch_a", "batch_b", "contract_a", "contract_b"}) {
    Dims dims = attributes.integers(name);
    for (int64_t& dim : dims) ++dim;
    if (std::string_view(name).starts_with("contract")) dims.insert(dims.begin(), 0);
    attributes.set(name, dims);
  }
  const Term sum(b, b.add1(OpKind::kDotGeneral, {first, second}, attributes));
  return product.permuted ? permute(sum, product.permuted->attributes.integers("order")) : sum;
}

// One iteration of the backward loop: the gradients of the iteration `at` with respect to what it started
// with (`active`) and to `captured`. `carried` are the gradients of what it ended with, then sums so far.
// Gradients that are products are not summed up: their factors are stacked, for one product after the loop.
struct Iteration {
  Backward& backward;
  const LoopParts& loop;
  const Ids& outputs;
  const std::vector<size_t>& active;
  const Ids& captured;
  const Ids& stacks;
  const std::vector<std::pair<ValueId, ValueId>>& kept;  // products of the body, and their stacks
  std::vector<GradientProduct>& products;

  LoopStep run(sym::Expr at, const std::vector<ValueId>& carried) const {
    Builder& b = backward.builder();
    const auto first = static_cast<int64_t>(b.graph().values.size());
    products.clear();
    NodeCopier copier(b);
    copier.map(loop.node.attributes.expr("counter"), at);
    for (size_t i = 0; i < loop.carried; ++i)
      copier.map(loop.body.parameters[i], stacks[i].valid() ? row_of(b, stacks[i], at).id() : loop.start(i));
    Ids rows;
    for (const auto& [inside, stack] : kept) rows.push_back(row_of(b, stack, at).id());
    const size_t first_node = b.graph().nodes.size();
    copier.copy(loop.body.nodes);
    Ids ys, cotangents, xs;
    for (size_t a = 0; a < active.size(); ++a) {
      ys.push_back(copier.at(loop.result(active[a])));
      cotangents.push_back(of_type(b, carried[a], b.type(ys.back())));
      xs.push_back(copier.at(loop.body.parameters[active[a]]));
    }
    for (size_t o = loop.carried; o < outputs.size(); ++o) {
      if (!outputs[o].valid()) continue;
      ys.push_back(copier.at(loop.body.results[loop.first + o]));
      cotangents.push_back(of_type(b, row_of(b, outputs[o], at), b.type(ys.back())));
    }
    xs.insert(xs.end(), captured.begin(), captured.end());
    std::vector<ValueId> next = backward.pull_back(ys, cotangents, xs), factors;
    // Gradients flow through the copies of the products; what they computed is in the rows.
    std::unordered_map<ValueId, ValueId> row_of_copy;
    for (size_t k = 0; k < kept.size(); ++k) row_of_copy.emplace(copier.at(kept[k].first), rows[k]);
    for (size_t n = first_node; n < b.graph().nodes.size(); ++n)
      for (ValueId& input : b.graph().nodes[n].inputs)
        if (const auto row = row_of_copy.find(input); row != row_of_copy.end()) input = row->second;
    for (size_t i = 0; i < next.size(); ++i) {
      if (i < active.size()) {
        next[i] = of_type(b, next[i], b.type(carried[i]));
        continue;
      }
      const auto product =
          next[i].valid() ? product_of(b.graph(), next[i], i - active.size(), first) : std::nullopt;
      if (product) {
        factors.insert(factors.end(), product->node.inputs.begin(), product->node.inputs.end());
        products.push_back(*product);
      }
      next[i] = next[i].valid() && !product ? reshape(b, add(b, carried[i], next[i]), b.shape(carried[i]))
                                            : carried[i];
    }
    return {.condition = std::nullopt, .carried = std::move(next), .stacked = std::move(factors)};
  }
};

}  // namespace

Ids loop_gradient(Backward& backward, const Node& node, const Ids& outputs, const Ids& wanted) {
  Builder& b = backward.builder();
  const LoopParts loop(node);
  if (node.attributes.find("growth"))
    no_gradient(node, "a carried value changes its size from iteration to iteration");
  if (const auto trips = sym::as_const(node.attributes.expr("trip_count")); trips && *trips >= kUnbounded)
    no_gradient(node, "the number of iterations has no bound");
  const std::vector<size_t> active = ops::active(b, loop, wanted);
  Ids inside = ops::captured(b.graph(), node), read;
  for (size_t i = 0; i < loop.carried; ++i)
    if (!loop.changes(i)) inside.push_back(loop.start(i));
  for (ValueId v : wanted)
    if (std::find(inside.begin(), inside.end(), v) != inside.end()) read.push_back(v);

  Ids stacks(loop.carried), carried;
  for (size_t i = 0; i < loop.carried; ++i)
    if (loop.changes(i)) stacks[i] = stack_of(b, loop, loop.body.parameters[i]);
  const auto kept = product_stacks(b, loop);
  for (size_t i : active) carried.push_back(of_type(b, outputs[i], b.type(loop.start(i))));
  for (ValueId v : read) carried.push_back(of_type(b, ValueId(), b.type(v)));
  std::vector<GradientProduct> products;
  const Iteration iteration{backward, loop, outputs, active, read, stacks, kept, products};
  const LoopResult result = ops::loop(b, loop.rows, std::nullopt, carried, [&](const LoopState& state) {
    return iteration.run(loop.rows - 1 - state.counter, state.carried);
  });

  Ids out;
  for (ValueId v : wanted) {
    std::optional<ValueId> sum;
    const auto collect = [&](ValueId part) {
      if (part.valid()) sum = sum ? add(b, *sum, part) : part;
    };
    for (size_t i = 0; i < loop.carried; ++i)
      if (loop.start(i) == v && !loop.changes(i)) collect(outputs[i]);
    for (size_t a = 0; a < active.size(); ++a)
      if (loop.start(active[a]) == v) collect(result.carried[a]);
    for (size_t r = 0; r < read.size(); ++r) {
      if (read[r] != v) continue;
      const auto product = std::ranges::find(products, r, &GradientProduct::captured);
      if (product == products.end()) {
        collect(result.carried[active.size() + r]);
        continue;
      }
      const auto at = static_cast<size_t>(2 * (product - products.begin()));
      const Term sum = sum_of_products(b, *product, result.stacked[at], result.stacked[at + 1]);
      collect(of_type(b, sum, b.type(v)));
    }
    out.push_back(sum.value_or(ValueId()));
  }
  return out;
}

}  // namespace stridec::ops

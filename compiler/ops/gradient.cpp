#include "compiler/ops/gradient.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::ops {

using graph::Builder;
using graph::Node;
using graph::NodeId;
using graph::Region;
using graph::ValueId;

Ids flat_gradient(Builder&, const Node&, const Ids&) { return {}; }

void no_gradient(const Node& node, const std::string& why) {
  fail(ErrorKind::kUnsupported, "no-gradient",
       cat("the gradient of ", graph::name(node.kind), " is not supported", why.empty() ? "" : ": ", why));
}

namespace {

// Where the run decides which dims broadcasting had repeated: a dim of size n is one of size n / to, of
// repeats, and one of size `to`; one of the two has size 1.
Term sum_repeats(Term gradient, const graph::Shape& shape) {
  const size_t lead = static_cast<size_t>(gradient.rank()) - shape.size();
  graph::Shape split;
  Dims summed;
  for (size_t d = 0; d < static_cast<size_t>(gradient.rank()); ++d) {
    const sym::Expr from = gradient.dim(static_cast<int64_t>(d));
    summed.push_back(static_cast<int64_t>(split.size()));
    if (d < lead) {
      split.push_back(from);
      continue;
    }
    split.push_back(sym::floordiv(from, sym::max(shape[d - lead], 1)));
    split.push_back(shape[d - lead]);
  }
  return reshape(reduce_sum(reshape(gradient, split), summed), shape);
}

}  // namespace

Term sum_to(Term gradient, const graph::Shape& shape) {
  Builder& b = gradient.builder();
  const size_t lead = static_cast<size_t>(gradient.rank()) - shape.size();
  Dims summed;
  for (size_t d = 0; d < lead; ++d) summed.push_back(static_cast<int64_t>(d));
  Dims kept;
  for (size_t d = 0; d < shape.size(); ++d) {
    const sym::Expr from = gradient.dim(static_cast<int64_t>(lead + d)), to = shape[d];
    if (from == to || b.holds(sym::eq(from, to))) continue;
    if (!b.holds(sym::eq(to, 1))) return sum_repeats(gradient, shape);
    kept.push_back(static_cast<int64_t>(lead + d));
  }
  summed.insert(summed.end(), kept.begin(), kept.end());
  if (summed.empty()) return gradient;
  return reshape(reduce_sum(gradient, summed), shape);
}

namespace {

// The nodes that y depends on, not going beyond `ends`, in creation order.
std::vector<NodeId> nodes_behind(const graph::Graph& g, ValueId y, const std::unordered_set<ValueId>& ends) {
  std::unordered_set<NodeId> seen;
  std::vector<ValueId> open{y};
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    const NodeId producer = g[value].producer;
    if (ends.contains(value) || !producer.valid() || !seen.insert(producer).second) continue;
    open.insert(open.end(), g[producer].inputs.begin(), g[producer].inputs.end());
  }
  std::vector<NodeId> out(seen.begin(), seen.end());
  std::sort(out.begin(), out.end(), [](NodeId a, NodeId b) { return a.value < b.value; });
  return out;
}

bool region_reads(const graph::Graph& g, const Region& region, const std::unordered_set<ValueId>& values) {
  const auto among = [&](ValueId v) { return values.contains(v); };
  if (std::any_of(region.results.begin(), region.results.end(), among)) return true;
  for (NodeId id : region.nodes) {
    if (std::any_of(g[id].inputs.begin(), g[id].inputs.end(), among)) return true;
    for (const Region& inner : g[id].regions)
      if (region_reads(g, inner, values)) return true;
  }
  return false;
}

// The values that depend on xs: xs and the outputs of nodes with a dependent input.
std::unordered_set<ValueId> dependent(const graph::Graph& g, const std::vector<NodeId>& nodes,
                                      const std::vector<ValueId>& xs) {
  std::unordered_set<ValueId> out(xs.begin(), xs.end());
  for (NodeId id : nodes) {
    const Node& node = g[id];
    bool depends =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return out.contains(v); });
    for (const Region& region : node.regions) depends = depends || region_reads(g, region, out);
    if (depends) out.insert(node.outputs.begin(), node.outputs.end());
  }
  return out;
}

}  // namespace

std::vector<ValueId> gradients(Builder& b, ValueId y, const std::vector<ValueId>& xs) {
  std::vector<NodeId> nodes = nodes_behind(b.graph(), y, {xs.begin(), xs.end()});
  const std::unordered_set<ValueId> depends = dependent(b.graph(), nodes, xs);
  std::unordered_map<ValueId, ValueId> adjoint;
  const auto ones = [&](ValueId v, double value) { return filled(b, b.shape(v), b.dtype(v), value).id(); };
  if (!is_float(b.dtype(y)))
    fail(ErrorKind::kDoesNotFit, "no-gradient",
         cat("a gradient is one of floats, but ", b.display(y), " is ", graph::to_string(b.type(y))));
  adjoint[y] = ones(y, 1);
  std::reverse(nodes.begin(), nodes.end());
  for (NodeId id : nodes) {
    const Node& node = b.graph()[id];
    Ids outputs;
    bool any = false;
    for (ValueId v : node.outputs) {
      const auto found = adjoint.find(v);
      outputs.push_back(found == adjoint.end() || !depends.contains(v) ? ValueId() : found->second);
      any |= outputs.back().valid();
    }
    if (!any) continue;
    const GradientFn gradient = op_def(node.kind).gradient;
    if (!gradient) no_gradient(node, node.origin);
    const Ids inputs = gradient(b, node, outputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!inputs[i].valid() || !depends.contains(input) || !is_float(b.dtype(input))) continue;
      const auto [place, first] = adjoint.emplace(input, inputs[i]);
      if (!first) place->second = b.add1(graph::OpKind::kAdd, {place->second, inputs[i]});
    }
  }
  std::vector<ValueId> out;
  for (ValueId x : xs) out.push_back(adjoint.contains(x) ? adjoint[x] : ones(x, 0));
  return out;
}

ValueId replay(Builder& b, ValueId y, const std::vector<ValueId>& from, const std::vector<ValueId>& to) {
  std::unordered_map<ValueId, ValueId> now;
  for (size_t i = 0; i < from.size(); ++i) now[from[i]] = to[i];
  const auto turned = [&](ValueId v) { return now.contains(v) ? now[v] : v; };
  for (NodeId id : nodes_behind(b.graph(), y, {from.begin(), from.end()})) {
    const Node& node = b.graph()[id];
    std::unordered_set<ValueId> changed;
    for (const auto& [old, fresh] : now)
      if (old != fresh) changed.insert(old);
    for (const Region& region : node.regions)
      if (region_reads(b.graph(), region, changed)) no_gradient(node, node.origin);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) inputs.push_back(turned(v));
    if (inputs == node.inputs) continue;
    if (!node.regions.empty()) no_gradient(node, node.origin);
    const std::vector<ValueId> before = node.outputs, after = b.add(node.kind, inputs, node.attributes);
    for (size_t i = 0; i < before.size(); ++i) now[before[i]] = after[i];
  }
  return turned(y);
}

}  // namespace stridec::ops

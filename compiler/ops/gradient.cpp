#include "compiler/ops/gradient.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/call.h"
#include "compiler/ops/linear_sum.h"
#include "compiler/sym/text.h"

namespace stridec::ops {

using graph::Builder;
using graph::Node;
using graph::NodeId;
using graph::Region;
using graph::ValueId;

void no_gradient(const Node& node, const std::string& why) {
  fail(ErrorKind::kUnsupported, "no-gradient",
       cat("the gradient of ", graph::name(node), " is not supported", why.empty() ? "" : ": ", why),
       "freeze the parameters before it, or stop the gradient there");
}

Term sum_to(Term gradient, const graph::Shape& shape) {
  Builder& b = gradient.builder();
  const size_t lead = static_cast<size_t>(gradient.rank()) - shape.size();
  Dims summed;
  for (size_t d = 0; d < lead; ++d) summed.push_back(static_cast<int64_t>(d));
  // Where it is not known whether a size was repeated, the dim becomes [times, size], and times is 1 if not.
  graph::Shape apart(gradient.shape().begin(), gradient.shape().begin() + static_cast<ptrdiff_t>(lead));
  for (size_t d = 0; d < shape.size(); ++d) {
    const sym::Expr from = gradient.dim(static_cast<int64_t>(lead + d)), to = shape[d];
    const bool same = from == to || b.holds(sym::eq(from, to));
    if (!same) summed.push_back(static_cast<int64_t>(apart.size()));
    if (!same && !b.holds(sym::eq(to, 1)))
      apart.push_back(b.simplify(sym::floordiv(from, sym::max(to, 1)))), apart.push_back(to);
    else
      apart.push_back(from);
  }
  if (summed.empty()) return gradient;
  if (apart.size() == static_cast<size_t>(gradient.rank()))
    return reshape(linear_sum(gradient, summed), shape);
  return reshape(reduce_sum(reshape(gradient, apart), summed), shape);
}

namespace {

constexpr const char* kNoGradient = "no-gradient";

void collect_captured(const graph::Graph& g, const Region& region, std::unordered_set<ValueId>& inside,
                      Ids& out) {
  const auto use = [&](ValueId v) {
    if (v.valid() && inside.insert(v).second) out.push_back(v);
  };
  inside.insert(region.parameters.begin(), region.parameters.end());
  for (NodeId id : region.nodes) {
    for (ValueId v : g[id].inputs) use(v);
    for (const Region& inner : g[id].regions) collect_captured(g, inner, inside, out);
    inside.insert(g[id].outputs.begin(), g[id].outputs.end());
  }
  for (ValueId v : region.results) use(v);
}

// What the node computes its outputs from: its inputs and what its regions read.
Ids sources(const graph::Graph& g, const Node& node) {
  Ids out = node.inputs;
  if (node.regions.empty()) return out;
  const Ids more = captured(g, node);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

// The nodes that ys depend on, not going beyond `ends`, in creation order.
std::vector<NodeId> nodes_behind(const graph::Graph& g, const Ids& ys,
                                 const std::unordered_set<ValueId>& ends) {
  std::unordered_set<NodeId> seen;
  std::vector<ValueId> open = ys;
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    const NodeId producer = g[value].producer;
    if (ends.contains(value) || !producer.valid() || !seen.insert(producer).second) continue;
    const Ids more = sources(g, g[producer]);
    open.insert(open.end(), more.begin(), more.end());
  }
  std::vector<NodeId> out(seen.begin(), seen.end());
  std::sort(out.begin(), out.end(), [](NodeId a, NodeId b) { return a.value < b.value; });
  return out;
}

}  // namespace

// Whether no gradient passes the node. Each routine of the library states its own.
bool stops_gradient(const Node& node) {
  return node.kind == graph::OpKind::kCall ? call_def(node).gradient.is_zero()
                                           : op_def(node.kind).gradient.is_zero();
}

std::unordered_set<ValueId> dependent(const graph::Graph& g, const std::vector<NodeId>& nodes,
                                      const Ids& xs) {
  std::unordered_set<ValueId> out(xs.begin(), xs.end());
  for (NodeId id : nodes) {
    const Node& node = g[id];
    if (stops_gradient(node)) continue;
    const Ids from = sources(g, node);
    if (std::none_of(from.begin(), from.end(), [&](ValueId v) { return out.contains(v); })) continue;
    for (ValueId v : node.outputs)
      if (is_float(g[v].type.dtype)) out.insert(v);
  }
  return out;
}

namespace {

// New nodes state which node of the model they come from.
class OriginOf {
 public:
  OriginOf(Builder& b, const Node& node) : builder_(b), before_(b.origin()) {
    if (!node.origin.empty()) b.set_origin(cat("gradient of ", node.origin));
  }
  ~OriginOf() { builder_.set_origin(before_); }
  OriginOf(const OriginOf&) = delete;
  OriginOf& operator=(const OriginOf&) = delete;

 private:
  Builder& builder_;
  const std::string before_;
};

Term zeros_like(Builder& b, ValueId v) { return filled(b, b.shape(v), b.dtype(v), 0); }

void throw_obstacles(const std::vector<Diagnostic>& obstacles) {
  if (obstacles.empty()) return;
  if (obstacles.size() == 1) throw Error(obstacles[0]);
  Diagnostic all{.kind = ErrorKind::kUnsupported,
                 .code = kNoGradient,
                 .message = cat(obstacles.size(), " operators have no gradient"),
                 .where = {},
                 .help = obstacles[0].help};
  for (const Diagnostic& each : obstacles)
    all.notes.push_back(each.where.node.empty() ? each.message : cat(each.where.node, ": ", each.message));
  throw Error(std::move(all));
}

}  // namespace

Ids captured(const graph::Graph& graph, const Node& node) {
  std::unordered_set<ValueId> inside;
  Ids out;
  for (const Region& region : node.regions) collect_captured(graph, region, inside, out);
  return out;
}

// Gradients of the values in `wanted`, which are among the node's sources.
Ids Backward::apply(const Node& node, const Ids& outputs, const Ids& wanted) {
  const Gradient& facet = op_def(node.kind).gradient;
  const OriginOf origin(builder_, node);
  try {
    if (facet.region_rule()) return facet.region_rule()(*this, node, outputs, wanted);
    const Ids inputs = facet.rule()(builder_, node, outputs);
    Ids out;
    for (ValueId v : wanted) {
      std::optional<ValueId> sum;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (node.inputs[i] == v && inputs[i].valid())
          sum = sum ? builder_.add1(graph::OpKind::kAdd, {*sum, inputs[i]}) : inputs[i];
      out.push_back(sum.value_or(ValueId()));
    }
    return out;
  } catch (Error& error) {
    if (error.diagnostic.code != kNoGradient) throw;
    Diagnostic& d = error.diagnostic;
    d.where.node = node.origin;
    d.where.op = std::string(graph::name(node));
    obstacles_.push_back(d);
    Ids out;  // the walk continues, to find all obstacles
    for (ValueId v : wanted) out.push_back(zeros_like(builder_, v).id());
    return out;
  }
}

Ids Backward::pull_back(const Ids& ys, const Ids& cotangents, const Ids& xs) {
  Builder& b = builder_;
  std::vector<NodeId> nodes = nodes_behind(b.graph(), ys, {xs.begin(), xs.end()});
  const std::unordered_set<ValueId> depends = dependent(b.graph(), nodes, xs);
  std::unordered_map<ValueId, ValueId> adjoint;
  const auto collect = [&](ValueId value, ValueId gradient) {
    if (!gradient.valid() || !depends.contains(value) || !is_float(b.dtype(value))) return;
    const auto [place, first] = adjoint.emplace(value, gradient);
    if (!first) place->second = b.add1(graph::OpKind::kAdd, {place->second, gradient});
  };
  for (size_t i = 0; i < ys.size(); ++i) collect(ys[i], cotangents[i]);
  const std::unordered_set<ValueId> ends(xs.begin(), xs.end());
  std::reverse(nodes.begin(), nodes.end());
  for (NodeId id : nodes) {
    const Node& node = b.graph()[id];
    Ids outputs;
    bool any = false;
    for (ValueId v : node.outputs) {
      const auto found = adjoint.find(v);
      outputs.push_back(found == adjoint.end() || ends.contains(v) ? ValueId() : found->second);
      any |= outputs.back().valid();
    }
    if (!any) continue;
    Ids wanted;
    for (ValueId v : sources(b.graph(), node))
      if (depends.contains(v) && is_float(b.dtype(v)) &&
          std::find(wanted.begin(), wanted.end(), v) == wanted.end())
        wanted.push_back(v);
    const Ids gradients = apply(node, outputs, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) collect(wanted[i], gradients[i]);
  }
  Ids out;
  for (ValueId x : xs) {
    const auto found = adjoint.find(x);
    out.push_back(found == adjoint.end() ? ValueId() : found->second);
  }
  return out;
}

Ids pull_back(Builder& b, const Ids& ys, const Ids& cotangents, const Ids& xs) {
  Backward backward(b);
  Ids out = backward.pull_back(ys, cotangents, xs);
  throw_obstacles(backward.obstacles());
  return out;
}

std::vector<ValueId> gradients(Builder& b, ValueId y, const std::vector<ValueId>& xs) {
  if (!is_float(b.dtype(y)))
    fail(ErrorKind::kDoesNotFit, kNoGradient,
         cat("a gradient is one of floats, but ", b.display(y), " is ", graph::to_string(b.type(y))));
  Ids out = pull_back(b, {y}, {filled(b, b.shape(y), b.dtype(y), 1).id()}, xs);
  for (size_t i = 0; i < xs.size(); ++i)
    if (!out[i].valid()) out[i] = zeros_like(b, xs[i]);
  return out;
}

Ids gradient_through(Builder& b, const Node& node, ValueId y, ValueId g) {
  Ids xs;
  for (ValueId v : node.inputs)
    if (is_float(b.dtype(v)) && std::find(xs.begin(), xs.end(), v) == xs.end()) xs.push_back(v);
  const Ids found = pull_back(b, {y}, {g}, xs);
  Ids out(node.inputs.size());
  for (size_t i = 0; i < xs.size(); ++i)
    out[static_cast<size_t>(std::find(node.inputs.begin(), node.inputs.end(), xs[i]) - node.inputs.begin())] =
        found[i];
  return out;
}

MissingGradients missing_gradients(const graph::Graph& graph, ValueId y, const Ids& xs) {
  graph::Graph scratch = graph;
  Builder b(scratch, shape_table());
  MissingGradients out;
  Ids found(xs.size());
  if (is_float(b.dtype(y))) {
    Backward backward(b);
    found = backward.pull_back({y}, {filled(b, b.shape(y), b.dtype(y), 1).id()}, xs);
    out.operators = backward.obstacles();
  }
  std::unordered_set<ValueId> reached{y};
  for (NodeId id : nodes_behind(graph, {y}, {}))
    for (ValueId v : sources(graph, graph[id])) reached.insert(v);
  for (size_t i = 0; i < xs.size(); ++i) {
    if (found[i].valid()) continue;
    const graph::Type& type = graph[xs[i]].type;
    out.unreached.push_back(
        {xs[i], !reached.contains(xs[i]) ? "the loss does not depend on it"
                : !is_float(type.dtype) || !is_float(graph[y].type.dtype)
                    ? cat("a gradient is one of floats, but ", !is_float(type.dtype) ? "it" : "the loss",
                          " is ", graph::to_string(is_float(type.dtype) ? graph[y].type : type))
                    : "every way to the loss passes an operator whose gradient is zero"});
  }
  return out;
}

}  // namespace stridec::ops

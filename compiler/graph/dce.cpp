// Dead-code elimination and renumbering. A node is live if a result needs one of its outputs, if it has an
// effect (update_state, a check), or if something live uses a symbol that the node binds during the run.
#include <unordered_map>
#include <unordered_set>

#include "compiler/base/check.h"
#include "compiler/graph/context_sizes.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

namespace {

class Marker {
 public:
  explicit Marker(const Graph& graph)
      : graph_(graph), node_(graph.nodes.size()), value_(graph.values.size()) {
    find_binders(graph.top, NodeId());
  }

  void mark(const Region& region) {
    for (ValueId id : region.results) need(id);
    drain();
  }
  void mark(sym::Expr expr) {
    for (sym::Expr v : sym::free_vars(expr)) {
      if (!symbols_.insert(v).second) continue;
      if (auto it = binder_.find(v); it != binder_.end()) need(it->second);
    }
    drain();
  }
  void mark_value(ValueId id) { need(id), drain(); }
  bool alive(NodeId id) const { return node_[id.value]; }
  bool alive(ValueId id) const { return value_[id.value]; }
  bool mentioned(sym::Expr symbol) const { return symbols_.contains(symbol); }

 private:
  // Finds the symbols that nodes bind, the node whose region contains each node, and the roots.
  void find_binders(const Region& region, NodeId holder) {
    for (NodeId id : region.nodes) {
      const Node& node = graph_[id];
      if (holder.valid()) holder_[id] = holder;
      for (const char* key : {"symbol", "count", "counter", "iterations"})
        if (const AttributeValue* value = node.attributes.find(key))
          if (const auto* symbol = std::get_if<sym::Expr>(value)) binder_[*symbol] = id;
      if (node.kind == OpKind::kUpdateState || node.attributes.integer_or("check", 0)) roots_.push_back(id);
      for (const Region& inner : node.regions) find_binders(inner, id);
    }
    if (!holder.valid())
      for (NodeId id : roots_) need(id);
  }

  void need(ValueId id) {
    if (!id.valid() || value_[id.value]) return;
    value_[id.value] = true;
    pending_exprs(graph_[id].type.shape);
    if (graph_[id].producer.valid()) need(graph_[id].producer);
  }
  void need(NodeId id) {
    if (node_[id.value]) return;
    node_[id.value] = true;
    work_.push_back(id);
  }
  void pending_exprs(const std::vector<sym::Expr>& exprs) {
    for (sym::Expr e : exprs)
      if (!e.is_const()) exprs_.push_back(e);
  }
  void drain() {
    while (!work_.empty() || !exprs_.empty()) {
      if (!exprs_.empty()) {
        sym::Expr e = exprs_.back();
        exprs_.pop_back();
        for (sym::Expr v : sym::free_vars(e)) {
          if (!symbols_.insert(v).second) continue;
          if (auto it = binder_.find(v); it != binder_.end()) need(it->second);
        }
        continue;
      }
      NodeId id = work_.back();
      work_.pop_back();
      const Node& node = graph_[id];
      if (auto it = holder_.find(id); it != holder_.end()) need(it->second);
      for (ValueId input : node.inputs) need(input);
      for (ValueId output : node.outputs) {
        value_[output.value] = true;
        pending_exprs(graph_[output].type.shape);
      }
      for (const auto& [key, value] : node.attributes.items()) {
        if (const auto* e = std::get_if<sym::Expr>(&value)) pending_exprs({*e});
        if (const auto* es = std::get_if<std::vector<sym::Expr>>(&value)) pending_exprs(*es);
      }
      for (const Region& region : node.regions) {
        for (ValueId parameter : region.parameters) need(parameter);
        for (ValueId result : region.results) need(result);
      }
    }
  }

  const Graph& graph_;
  std::vector<bool> node_, value_;
  std::vector<NodeId> work_, roots_;
  std::vector<sym::Expr> exprs_;
  std::unordered_set<sym::Expr, sym::ExprHash> symbols_;
  std::unordered_map<sym::Expr, NodeId, sym::ExprHash> binder_;
  std::unordered_map<NodeId, NodeId> holder_;  // the if or loop whose region contains the node
};

// Moves live values and nodes into new arrays, in execution order.
struct Renumber {
  Graph& graph;
  const Marker& live;
  std::deque<Node> nodes;
  std::deque<Value> values;
  std::vector<ValueId> to;

  void value(ValueId id) {
    to[id.value] = ValueId(static_cast<int64_t>(values.size()));
    values.push_back(std::move(graph[id]));
  }
  void map(std::vector<ValueId>& ids) {
    for (ValueId& id : ids)
      if (id.valid()) id = to[id.value];
  }
  void region(Region& region) {
    for (ValueId id : region.parameters) value(id);
    std::vector<NodeId> kept;
    for (NodeId id : region.nodes) {
      if (!live.alive(id)) continue;
      Node& node = graph[id];
      for (Region& inner : node.regions) this->region(inner);
      map(node.inputs);
      const NodeId renamed(static_cast<int64_t>(nodes.size()));
      for (ValueId output : node.outputs) {
        graph[output].producer = renamed;
        value(output);
      }
      map(node.outputs);
      nodes.push_back(std::move(node));
      kept.push_back(renamed);
    }
    region.nodes = std::move(kept);
    map(region.parameters);
    map(region.results);
  }
};

}  // namespace

void eliminate_dead_code(Graph& graph) {
  Marker live(graph);
  live.mark(graph.top);
  for (ValueId parameter : graph.top.parameters) live.mark_value(parameter);
  for (const sym::Guard& guard : graph.guards) live.mark(guard.condition);
  Renumber renumber{graph, live, {}, {}, std::vector<ValueId>(graph.values.size())};
  renumber.region(graph.top);
  for (State& state : graph.states) state.value = renumber.to[state.value.value];
  graph.nodes = std::move(renumber.nodes);
  graph.values = std::move(renumber.values);
  // The elements of a live value may be the only remaining use of a symbol of a dead node. Then nothing reads
  // the elements, so they are dropped.
  std::unordered_set<sym::Expr, sym::ExprHash> dead;
  for (const Symbol& symbol : graph.symbols)
    if (!is_bound_before_run(graph, symbol) && !live.mentioned(symbol.var)) dead.insert(symbol.var);
  std::erase_if(graph.symbols, [&](const Symbol& symbol) { return dead.contains(symbol.var); });
  if (dead.empty()) return;
  for (Value& value : graph.values) {
    if (!value.elements) continue;
    bool lost = false;
    for (sym::Expr e : *value.elements)
      for (sym::Expr v : sym::free_vars(e)) lost = lost || dead.contains(v);
    if (lost) value.elements.reset();
  }
}

}  // namespace stridec::graph

#include "compiler/passes/join_siblings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "compiler/ops/helpers.h"
#include "compiler/passes/edit.h"

namespace stridec::passes {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;

struct Sibling {
  NodeId product;
  std::optional<ValueId> bias;  // a vector along the columns, added to the whole GEMM result
  ValueId result;
};

// The users of each value. A region result counts as a user without a node.
using Users = std::map<ValueId, std::vector<std::optional<NodeId>>>;

void collect(const Graph& graph, const graph::Region& region, Users& users) {
  for (NodeId id : region.nodes) {
    for (ValueId input : graph[id].inputs) users[input].push_back(id);
    for (const graph::Region& inner : graph[id].regions) collect(graph, inner, users);
  }
  for (ValueId result : region.results) users[result].push_back(std::nullopt);
}

// Whether the rank is at least 1 and all dims but the last are 1.
bool is_row(const Shape& shape, sym::Expr columns) {
  return !shape.empty() && shape.back() == columns &&
         std::all_of(shape.begin(), shape.end() - 1, [](sym::Expr d) { return d.is_const(1); });
}

bool is_view(OpKind kind) {
  return kind == OpKind::kReshape || kind == OpKind::kPermute || kind == OpKind::kSlice;
}

class Joining {
 public:
  explicit Joining(Graph& graph) : graph_(graph), edit_(graph) { collect(graph, graph.top, users_); }

  void region(graph::Region& region) {
    std::vector<std::vector<Sibling>> families;  // in the order of their first GEMMs
    for (NodeId id : region.nodes) {
      for (graph::Region& inner : graph_[id].regions) this->region(inner);
      const auto sibling = sibling_of(id);
      if (!sibling) continue;
      const auto family = std::find_if(families.begin(), families.end(), [&](const auto& other) {
        return are_siblings(graph_[other.front().product], graph_[id]);
      });
      if (family == families.end())
        families.push_back({*sibling});
      else
        family->push_back(*sibling);
    }
    std::erase_if(families, [](const auto& family) { return family.size() < 2; });
    if (families.empty()) return;
    // The constants of all siblings are inserted before the first of them.
    std::vector<NodeId> order;
    for (bool constant : {true, false})
      for (NodeId id : region.nodes)
        if (constant == is_constant(id)) order.push_back(id);
    region.nodes = std::move(order);
    for (const auto& family : families) join(family);
  }

  void finish() { edit_.finish(); }

 private:
  bool is_constant(NodeId id) const {
    const auto& outputs = graph_[id].outputs;
    return !outputs.empty() && edit_.is_constant(outputs[0]);
  }

  static bool are_siblings(const Node& a, const Node& b) {
    return a.inputs[0] == b.inputs[0] && a.attributes == b.attributes;
  }

  std::optional<Sibling> sibling_of(NodeId id) const {
    const Node& node = graph_[id];
    if (node.kind != OpKind::kDotGeneral || !edit_.is_stored_constant(node.inputs[1]) ||
        edit_.is_constant(node.inputs[0]) || !node.attributes.integers("batch_a").empty() ||
        graph_[node.inputs[1]].type.shape.size() != 2 || node.attributes.integers("contract_b").size() != 1 ||
        !is_float(graph_[node.outputs[0]].type.dtype))
      return std::nullopt;
    Sibling found{id, std::nullopt, node.outputs[0]};
    const graph::Type& type = graph_[found.result].type;
    if (!type.shape.back().is_const()) return std::nullopt;
    if (const auto user = edit_.only_user(found.result); user && graph_[*user].kind == OpKind::kAdd) {
      const Node& add = graph_[*user];
      const ValueId other = add.inputs[add.inputs[0] == found.result ? 1 : 0];
      if (edit_.is_constant(other) && is_row(graph_[other].type.shape, type.shape.back()) &&
          graph_[add.outputs[0]].type == type) {
        found.bias = other;
        found.result = add.outputs[0];
      }
    }
    const auto users = users_.find(found.result);
    if (users == users_.end()) return std::nullopt;
    for (const auto& user : users->second)
      if (!user || !is_view(graph_[*user].kind)) return std::nullopt;
    return found;
  }

  void join(const std::vector<Sibling>& family) {
    const Node first = graph_[family.front().product];  // a copy: adding nodes may move the graph's
    const auto along = first.attributes.integers("contract_b")[0] == 0 ? 1 : 0;
    const bool biased = std::any_of(family.begin(), family.end(), [](const Sibling& s) { return s.bias; });
    edit_.insert_before(family.front().product, [&](Builder& b) {
      std::vector<ValueId> weights, biases;
      for (const Sibling& s : family) {
        const sym::Expr columns = b.shape(graph_[s.product].outputs[0]).back();
        weights.push_back(graph_[s.product].inputs[1]);
        if (!biased) continue;
        biases.push_back(s.bias ? ops::reshape(b, *s.bias, {columns})
                                : ops::full(b, {columns}, b.dtype(s.result), 0));
      }
      ValueId all =
          b.add1(OpKind::kDotGeneral, {first.inputs[0], ops::concat(b, weights, along)}, first.attributes);
      if (biased) all = ops::add(b, all, ops::concat(b, biases, 0));
      sym::Expr at = 0;
      for (const Sibling& s : family) {
        const Shape shape = b.shape(s.result);
        const ValueId part = ops::slice(b, all, static_cast<int64_t>(shape.size()) - 1, at, shape.back());
        b.set_name(part, graph_[s.result].name);
        edit_.replace(s.result, part);
        at += shape.back();
      }
    });
  }

  Graph& graph_;
  Edit edit_;
  Users users_;
};

}  // namespace

void join_siblings(Graph& graph) {
  Joining joining(graph);
  joining.region(graph.top);
  joining.finish();
}

}  // namespace stridec::passes

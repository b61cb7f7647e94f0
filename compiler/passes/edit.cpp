#include "compiler/passes/edit.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/ops/op_table.h"

namespace stridec::passes {

using graph::NodeId;
using graph::OpKind;
using graph::Region;
using graph::ValueId;

namespace {

bool is_static(const graph::Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](sym::Expr dim) { return dim.is_const(); });
}

// Limit on how much larger than its source constants a compile-time value may be; also 2 for floats in
// schedule/algebra/constants.cpp.
constexpr int64_t kGrowth = 2;
// Number of the largest source constants of a value that count.
constexpr size_t kMostSources = 8;

int64_t bytes_of(const graph::Type& type) {
  int64_t bytes = byte_size(type.dtype);
  for (sym::Expr dim : type.shape) bytes *= dim.value();
  return bytes;
}

// Whether the node computes the same for the same inputs and has no effect besides its outputs.
bool depends_on_inputs_alone(const graph::Node& node) {
  return node.kind != OpKind::kRandomUniform && node.kind != OpKind::kUpdateState &&
         node.kind != OpKind::kSymbolOf && node.kind != OpKind::kNonZero && node.regions.empty();
}

}  // namespace

Edit::Edit(graph::Graph& graph) : graph_(graph) { look(graph.top); }

void Edit::look(const Region& region) {
  for (NodeId id : region.nodes) {
    const graph::Node& node = graph_[id];
    region_[id] = &region;
    bool constant = node.kind == OpKind::kConstant || (!node.inputs.empty() && depends_on_inputs_alone(node));
    std::vector<ValueId> sources;
    if (node.kind == OpKind::kConstant) sources.push_back(node.outputs[0]);
    for (ValueId input : node.inputs) {
      ++uses_[input];
      user_[input] = id;
      const auto found = sources_.find(input);
      constant = constant && found != sources_.end();
      if (constant) add_sources(sources, found->second);
    }
    for (ValueId output : node.outputs)
      if (constant && is_static(graph_[output].type.shape)) sources_.emplace(output, sources);
    for (const Region& inner : node.regions) look(inner);
  }
  // counts as more than one use, because it is not a node's
  for (ValueId result : region.results) uses_[result] += 2;
}

void Edit::add_sources(std::vector<ValueId>& to, const std::vector<ValueId>& from) const {
  for (ValueId source : from)
    if (std::find(to.begin(), to.end(), source) == to.end()) to.push_back(source);
  if (to.size() <= kMostSources) return;
  std::sort(to.begin(), to.end(), [&](ValueId a, ValueId b) {
    const int64_t x = bytes_of(graph_[a].type), y = bytes_of(graph_[b].type);
    return x != y ? x > y : a.value < b.value;
  });
  to.resize(kMostSources);
}

bool Edit::is_stored_constant(ValueId value) const {
  const auto found = sources_.find(value);
  if (found == sources_.end()) return false;
  int64_t bytes = 0;
  for (ValueId source : found->second) bytes += bytes_of(graph_[source].type);
  return bytes_of(graph_[value].type) <= kGrowth * bytes;
}

std::optional<NodeId> Edit::only_user(ValueId value) const {
  const auto uses = uses_.find(value);
  if (uses == uses_.end() || uses->second != 1 || !graph_[value].producer.valid()) return std::nullopt;
  const NodeId user = user_.at(value);
  if (region_.at(user) != region_.at(graph_[value].producer)) return std::nullopt;
  return user;
}

void Edit::insert_before(NodeId at, const std::function<void(graph::Builder&)>& make,
                         std::optional<NodeId> moved) {
  std::vector<NodeId>& list = before_[at];
  if (moved) {
    moved_.insert(*moved);
    // Nodes that were to be inserted before it stay before it.
    if (auto earlier = before_.extract(*moved); !earlier.empty())
      list.insert(list.end(), earlier.mapped().begin(), earlier.mapped().end());
  }
  graph::Builder builder(graph_, ops::shape_table());
  builder.set_origin(graph_[at].origin);
  const auto before = static_cast<int64_t>(graph_.nodes.size());
  make(builder);
  // Nodes that name sizes were added to the front of the region, and stay there.
  auto& top = graph_.top.nodes;
  auto first = top.end();
  while (first != top.begin() && std::prev(first)->value >= before) --first;
  list.insert(list.end(), first, top.end());
  top.erase(first, top.end());
  if (moved) list.push_back(*moved);
}

void Edit::turn(std::vector<ValueId>& values) const {
  for (ValueId& value : values)
    for (auto it = replaced_.find(value); it != replaced_.end(); it = replaced_.find(value))
      value = it->second;
}

void Edit::place(Region& region) {
  std::vector<NodeId> nodes;
  for (NodeId id : region.nodes) {
    if (auto it = before_.find(id); it != before_.end())
      nodes.insert(nodes.end(), it->second.begin(), it->second.end());
    if (!moved_.contains(id)) nodes.push_back(id);
  }
  region.nodes = std::move(nodes);
  for (NodeId id : region.nodes) {
    turn(graph_[id].inputs);
    for (Region& inner : graph_[id].regions) place(inner);
  }
  turn(region.results);
}

void Edit::visit_region(const Region& region, const std::function<void(NodeId)>& visit) {
  const std::vector<NodeId> nodes = region.nodes;
  for (NodeId id : nodes) {
    visit(id);
    for (const Region& inner : graph_[id].regions) visit_region(inner, visit);
  }
}

void Edit::finish() {
  place(graph_.top);
  graph::eliminate_dead_code(graph_);
}

}  // namespace stridec::passes

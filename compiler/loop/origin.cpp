#include "compiler/loop/origin.h"

#include <algorithm>
#include <utility>

#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

// What a statement defines, and the values that it uses; a loop's results use its body's yields.
struct Flow {
  std::vector<ValueId> results, uses;
};

std::vector<Flow> flows_of(const Nest& nest) {
  std::vector<Flow> all;
  for_each_stmt(nest.body, [&](const Stmt& stmt) {
    Flow flow;
    for_each_result(stmt, [&](ValueId v) { flow.results.push_back(v); });
    for_each_use(stmt, [&](ValueId v) { flow.uses.push_back(v); });
    if (const auto* scan = std::get_if<Scan>(&stmt.node))
      flow.results.insert(flow.results.end(), scan->carried.begin(), scan->carried.end());
    if (!flow.results.empty()) all.push_back(std::move(flow));
  });
  return all;
}

// Gives those of `to` without a node the first node that a value of `from` has. Returns whether there are
// any.
bool spread(const std::vector<ValueId>& from, const std::vector<ValueId>& to, std::vector<Origin>& origins) {
  const auto known = std::ranges::find_if(from, [&](ValueId v) { return origins[v.value].node.valid(); });
  if (known == from.end()) return false;
  const NodeId node = origins[known->value].node;
  bool news = false;
  for (const ValueId v : to)
    if (Origin& origin = origins[v.value]; !origin.node.valid()) origin.node = node, news = true;
  return news;
}

}  // namespace

std::vector<Origin> origins_of(const Nest& nest) {
  std::vector<Origin> origins;
  for (const ValueInfo& value : nest.values) origins.push_back(value.origin);
  if (std::ranges::all_of(origins, [](const Origin& origin) { return origin.node.valid(); })) return origins;
  if (nest.nodes.size() == 1) {
    for (Origin& origin : origins)
      if (!origin.node.valid()) origin.node = node_of(nest.nodes[0]);
    return origins;
  }
  const std::vector<Flow> flows = flows_of(nest);
  for (bool news = true; news;) {
    news = false;
    // Users come first, so that one pass from the end takes a node to all that its value needs.
    for (size_t i = flows.size(); i-- > 0;) news |= spread(flows[i].results, flows[i].uses, origins);
    if (news) continue;
    for (const Flow& flow : flows) news |= spread(flow.uses, flow.results, origins);
  }
  return origins;
}

NodeId node_of(const Nest& nest, ValueId value) {
  return origins_of(nest)[static_cast<size_t>(value.value)].node;
}

void attribute(Nest& nest, NodeId node) {
  for (ValueInfo& value : nest.values)
    if (!value.origin.node.valid()) value.origin.node = node;
}

}  // namespace stridec::loop

#include "compiler/passes/linear.h"

#include <algorithm>

#include "compiler/base/check.h"

namespace stridec::passes {
namespace {

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::vector<int64_t> dims_in_result(const graph::Graph& graph, const graph::Node& node, size_t side) {
  using graph::OpKind;
  if (node.kind != OpKind::kDotGeneral) {
    STRIDEC_CHECK(node.kind == OpKind::kConv || node.kind == OpKind::kConvTranspose);
    std::vector<int64_t> dims(graph[node.outputs[0]].type.shape.size(), -1);
    if (side == 0) {
      dims[0] = 0;
    } else {
      dims[1] = node.kind == OpKind::kConv ? 0 : 1;
    }
    return dims;
  }
  std::vector<int64_t> dims = node.attributes.integers(side == 0 ? "batch_a" : "batch_b");
  for (size_t s = 0; s < 2; ++s) {
    const auto& taken = node.attributes.integers(s == 0 ? "batch_a" : "batch_b");
    const auto& contracted = node.attributes.integers(s == 0 ? "contract_a" : "contract_b");
    const auto rank = static_cast<int64_t>(graph[node.inputs[s]].type.shape.size());
    for (int64_t d = 0; d < rank; ++d)
      if (!contains(taken, d) && !contains(contracted, d)) dims.push_back(s == side ? d : -1);
  }
  return dims;
}

}  // namespace stridec::passes

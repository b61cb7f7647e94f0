#include "compiler/passes/sink_scales.h"

#include <cmath>
#include <optional>
#include <vector>

#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/ops/helpers.h"
#include "compiler/passes/edit.h"

namespace stridec::passes {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

bool is_view(OpKind kind) {
  return kind == OpKind::kReshape || kind == OpKind::kPermute || kind == OpKind::kSlice ||
         kind == OpKind::kExpand;
}

// The number that a constant of one element holds.
std::optional<double> number_of(const graph::Value& value) {
  const auto size = static_cast<size_t>(byte_size(value.type.dtype));
  if (!value.data || value.data->size != size || !is_float(value.type.dtype)) return std::nullopt;
  return read_float(value.type.dtype, value.data->bytes);
}

// `value` == `of` * `factor`.
struct Scaled {
  ValueId of;
  double factor;
};

std::optional<Scaled> scaled(const Graph& graph, ValueId value) {
  const Node& node = graph[graph[value].producer];
  if (node.kind == OpKind::kNeg) return Scaled{node.inputs[0], -1};
  if (node.kind != OpKind::kMul && node.kind != OpKind::kDiv) return std::nullopt;
  for (size_t constant : {1, 0}) {
    const auto number = number_of(graph[node.inputs[constant]]);
    const ValueId of = node.inputs[1 - constant];
    if (!number || graph[of].type != graph[value].type) continue;
    if (node.kind == OpKind::kMul) return Scaled{of, *number};
    if (constant == 1) return Scaled{of, 1 / *number};
  }
  return std::nullopt;
}

void sink(Edit& edit, NodeId id) {
  Graph& graph = edit.graph();
  const Node product = graph[id];  // a copy: new nodes move the graph's
  if (product.kind != OpKind::kDotGeneral && product.kind != OpKind::kConv &&
      product.kind != OpKind::kConvTranspose)
    return;
  const ValueId result = product.outputs[0];
  const DType dtype = graph[result].type.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) return;
  double factor = 1;
  std::vector<Scaled> found;  // where `of` takes the place of a value
  std::vector<ValueId> instead;
  for (ValueId value : product.inputs) {
    if (graph[value].type.dtype != dtype) return;
    while (edit.only_user(value)) {
      const Node& node = graph[graph[value].producer];
      if (const auto scale = scaled(graph, value)) {
        instead.push_back(value);
        found.push_back(*scale);
        factor *= scale->factor;
        value = scale->of;
      } else if (is_view(node.kind)) {
        value = node.inputs[0];
      } else {
        break;
      }
    }
  }
  const double rounded = round_float(dtype, factor);
  if (found.empty() || rounded == 0 || !std::isfinite(rounded)) return;
  for (size_t i = 0; i < found.size(); ++i) edit.replace(instead[i], found[i].of);
  edit.insert_before(id, [&](Builder& b) {
    const ValueId plain = b.add1(product.kind, product.inputs, product.attributes);
    const ValueId scaled = ops::mul(b, plain, factor);
    b.set_name(scaled, graph[result].name);
    edit.replace(result, scaled);
  });
}

}  // namespace

void sink_scales(Graph& graph) {
  Edit edit(graph);
  edit.for_each_node([&](NodeId id) { sink(edit, id); });
  edit.finish();
}

}  // namespace stridec::passes

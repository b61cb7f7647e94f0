#include "compiler/passes/sink_scales.h"

#include <cmath>
#include <optional>
#include <vector>

#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/ops/term.h"
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

// The value of a constant with one element, or one computed from such constants (ONNX attention takes roots
// of roots of sizes).
std::optional<double> number_of(const Graph& graph, ValueId id) {
  const graph::Value& value = graph[id];
  const DType dtype = value.type.dtype;
  if (const graph::Data* const data = value.known_data()) {
    if (data->size != static_cast<size_t>(byte_size(dtype))) return std::nullopt;
    if (is_float(dtype)) return read_float(dtype, data->bytes);
    return is_integer(dtype)
               ? std::optional<double>(static_cast<double>(read_integer(dtype, data->bytes)))
               : std::nullopt;
  }
  if (!value.producer.valid() || !is_float(dtype)) return std::nullopt;
  const Node& node = graph[value.producer];
  double args[2] = {};
  if (node.inputs.size() > 2) return std::nullopt;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto number = number_of(graph, node.inputs[i]);
    if (!number) return std::nullopt;
    args[i] = *number;
  }
  switch (node.kind) {
    case OpKind::kCast: return round_float(dtype, args[0]);
    case OpKind::kSqrt: return round_float(dtype, std::sqrt(args[0]));
    case OpKind::kMul: return round_float(dtype, args[0] * args[1]);
    case OpKind::kDiv: return round_float(dtype, args[0] / args[1]);
    default: return std::nullopt;
  }
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
    const auto number = number_of(graph, node.inputs[constant]);
    const ValueId of = node.inputs[1 - constant];
    if (!number || graph[of].type != graph[value].type) continue;
    if (node.kind == OpKind::kMul) return Scaled{of, *number};
    if (constant == 1) return Scaled{of, 1 / *number};
  }
  return std::nullopt;
}

void sink(Edit& edit, NodeId id) {
  Graph& graph = edit.graph();
  const Node product = graph[id];  // a copy: adding nodes may move the graph's
  if (product.kind != OpKind::kDotGeneral && product.kind != OpKind::kConv &&
      product.kind != OpKind::kConvTranspose)
    return;
  const ValueId result = product.outputs[0];
  const DType dtype = graph[result].type.dtype;
  // Narrow floats with an f32 accumulator are scaled before the sum is rounded.
  const bool narrow = byte_size(dtype) == 2 && is_float(dtype) && product.attributes.find("accumulate") &&
                      product.attributes.dtype("accumulate") == DType::kF32;
  if (dtype != DType::kF32 && dtype != DType::kF64 && !narrow) return;
  double factor = 1;
  std::vector<Scaled> found;  // entries where `of` replaces an input
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
  const DType sum = narrow ? DType::kF32 : dtype;
  const double rounded = round_float(sum, factor);
  if (found.empty() || rounded == 0 || !std::isfinite(rounded)) return;
  for (size_t i = 0; i < found.size(); ++i) edit.replace(instead[i], found[i].of);
  edit.insert_before(id, [&](Builder& b) {
    graph::Attributes attributes = product.attributes;
    if (narrow) attributes.set("to", sum);
    const ops::Term plain(b, b.add1(product.kind, product.inputs, attributes));
    const ValueId scaled = cast(plain * factor, dtype).id();
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

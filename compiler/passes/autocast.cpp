#include "compiler/passes/autocast.h"

#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
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

constexpr Precision kPrecisions[] = {
    {"fp32", "what the model says", DType::kF32, 1e-4},
    {"tf32", "on a GPU products of f32 take tf32 (11 bits of precision, the range of f32)", DType::kTF32,
     5e-3},
    {"bf16", "products of f32 take bfloat16 (8 bits of precision, the range of f32)", DType::kBF16, 5e-2},
    {"fp16", "products of f32 take float16 (11 bits of precision, up to 65504)", DType::kF16, 5e-3},
};

enum class Rule : uint8_t {
  kWide,    // an f32 computation: stays in f32
  kNarrow,  // a GEMM or convolution: its operands are rounded
  kMoves,   // moves data only: rounding may come before it
};

constexpr std::pair<OpKind, Rule> kRules[] = {
    {OpKind::kDotGeneral, Rule::kNarrow},    {OpKind::kConv, Rule::kNarrow},
    {OpKind::kConvTranspose, Rule::kNarrow}, {OpKind::kReshape, Rule::kMoves},
    {OpKind::kPermute, Rule::kMoves},        {OpKind::kExpand, Rule::kMoves},
    {OpKind::kSlice, Rule::kMoves},
};

Rule rule_of(OpKind kind) {
  for (const auto& [listed, rule] : kRules)
    if (listed == kind) return rule;
  return Rule::kWide;
}

using Rounded = std::unordered_map<ValueId, ValueId>;  // rounded values in scope, by original value

ValueId narrowed(Builder& b, ValueId value, DType to, Rounded& made) {
  if (const auto found = made.find(value); found != made.end()) return found->second;
  const graph::Value& v = b.graph()[value];
  if (v.producer.valid()) {
    const Node& node = b.graph()[v.producer];
    // The value is an exact conversion from the narrow type: use the original.
    if (node.kind == OpKind::kCast && b.dtype(node.inputs[0]) == to) return node.inputs[0];
    if (rule_of(node.kind) == Rule::kMoves)
      return made[value] = b.add1(node.kind, {narrowed(b, node.inputs[0], to, made)}, node.attributes);
  }
  return made[value] = ops::cast(b, value, to);
}

void narrow(Edit& edit, const graph::Region& region, DType to, Rounded made) {
  const std::vector<NodeId> nodes = region.nodes;
  for (NodeId id : nodes) {
    Node& node = edit.graph()[id];
    for (const graph::Region& inner : node.regions) narrow(edit, inner, to, made);
    if (rule_of(node.kind) != Rule::kNarrow) continue;
    const ValueId output = node.outputs[0];
    if (edit.graph()[output].type.dtype != DType::kF32 ||
        edit.graph()[node.inputs[0]].type.dtype != DType::kF32)
      continue;
    edit.insert_before(id, [&](Builder& b) {
      std::vector<ValueId> inputs;
      for (ValueId input : node.inputs) inputs.push_back(narrowed(b, input, to, made));
      graph::Attributes attributes = node.attributes;
      attributes.set("accumulate", DType::kF32);
      attributes.set("to", DType::kF32);
      const ValueId result = b.add1(node.kind, inputs, std::move(attributes));
      b.set_name(result, edit.graph()[output].name);
      edit.replace(output, result);
    });
  }
}

}  // namespace

std::span<const Precision> precisions() { return kPrecisions; }

const Precision& precision(std::string_view name) {
  for (const Precision& p : kPrecisions)
    if (p.name == name) return p;
  fail(ErrorKind::kUsage, "unknown-precision", cat("there is no precision '", name, "'"),
       "use " + join(kPrecisions, ", ", [](const Precision& p) { return p.name; }));
}

std::string computes_in(OpKind kind, const Precision& precision) {
  const Rule rule = rule_of(kind);
  if (rule == Rule::kNarrow) return cat(name(precision.factors), " factors, f32 sum");
  return rule == Rule::kMoves && precision.factors != DType::kF32 ? "as its reader" : "f32";
}

void autocast(Graph& graph, DType factors) {
  if (factors == DType::kF32) return;
  Edit edit(graph);
  narrow(edit, graph.top, factors, {});
  edit.finish();
}

}  // namespace stridec::passes

#include "cli/tolerance.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/passes/edit.h"

namespace stridec::cli {
namespace {

using graph::Builder;
using graph::Node;
using graph::OpKind;
using graph::ValueId;

constexpr double kMoved = 1.0 / 500;  // steps

// Bits of the significand, with the leading one.
int significand_bits(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 53;
    case DType::kF32: return 24;
    case DType::kTF32:
    case DType::kF16: return 11;
    case DType::kBF16: return 8;
    case DType::kF8E4M3:
    case DType::kF8E4M3Fnuz:
    case DType::kF6E2M3: return 4;
    case DType::kF8E5M2:
    case DType::kF8E5M2Fnuz:
    case DType::kF6E3M2: return 3;
    case DType::kF4E2M1: return 2;
    default: return 1;
  }
}

bool is_tiny_float(DType dtype) { return is_float(dtype) && info(dtype).bits <= 8; }

// Whether the node rounds to steps: to integers, or to a float of 8 bits and fewer.
bool quantizes(const graph::Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.outputs.empty()) return false;
  const DType from = graph[node.inputs[0]].type.dtype, to = graph[node.outputs[0]].type.dtype;
  if (!is_float(from) || is_tiny_float(from)) return false;
  return node.kind == OpKind::kRound || (node.kind == OpKind::kCast && is_tiny_float(to));
}

// Whether results are rounded to their type, instead of only being moved or stored.
bool computes(OpKind kind) {
  return kind != OpKind::kConstant && kind != OpKind::kCast &&
         passes::computes_in(kind, passes::precision("fp16")) != "as its reader";
}

}  // namespace

Tolerance default_tolerance(const graph::Graph& graph, const passes::Precision& precision) {
  constexpr double kOfDoubles = 1e-9;
  Tolerance made{.relative = precision.tolerance, .reason = {}, .quantized = false};
  DType narrowest = DType::kF64;
  bool rounds = false;
  for (const Node& node : graph.nodes) {
    made.quantized |= quantizes(graph, node);
    if (!computes(node.kind)) continue;
    for (ValueId id : node.outputs) {
      const DType dtype = graph[id].type.dtype;
      rounds |= is_float(dtype);
      if (is_float(dtype) && !is_tiny_float(dtype) && significand_bits(dtype) < significand_bits(narrowest))
        narrowest = dtype;
    }
  }
  if (!rounds && !made.quantized && precision.factors == DType::kF32)
    return {.relative = 0, .reason = "no result is rounded", .quantized = false};
  if (narrowest == DType::kF32) narrowest = precision.factors;
  if (narrowest == DType::kF64 && precision.factors == DType::kF32) made.relative = kOfDoubles;
  made.relative = std::max(made.relative, 8 * std::ldexp(1.0, -significand_bits(narrowest)));
  made.reason = std::string(name(narrowest));
  return made;
}

std::string to_string(const Tolerance& tolerance) {
  return cat("tolerance ", tolerance.relative, " (", tolerance.reason,
             tolerance.quantized ? "; quantised, so a rounding may go to the neighbouring step" : "", ")");
}

graph::Graph with_rounding_moved(const graph::Graph& graph, double steps) {
  graph::Graph moved = graph;
  passes::Edit edit(moved);
  edit.for_each_node([&](graph::NodeId id) {
    const Node node = moved[id];
    if (!quantizes(moved, node)) return;
    const DType dtype = moved[node.inputs[0]].type.dtype, to = moved[node.outputs[0]].type.dtype;
    ValueId result;
    edit.insert_before(id, [&](Builder& builder) {
      std::vector<ValueId> inputs = node.inputs;
      if (node.kind == OpKind::kRound) {
        // Narrow floats lose a small addend of a sum with values of up to 255.
        const double least = 256 * std::ldexp(1.0, -significand_bits(dtype));
        const double by = std::copysign(std::max(std::abs(steps), std::min(least, 0.5)), steps);
        inputs[0] = builder.add1(OpKind::kAdd, {inputs[0], builder.scalar(dtype, by)});
      } else {
        const double by = 1 + steps * std::ldexp(2.0, -significand_bits(to));
        inputs[0] = builder.add1(OpKind::kMul, {inputs[0], builder.scalar(dtype, by)});
      }
      result = builder.add1(node.kind, inputs, node.attributes);
    });
    edit.replace(node.outputs[0], result);
  });
  edit.finish();
  return moved;
}

std::vector<Allowed> allowed_differences(const graph::Graph& graph, const Tensors& want,
                                         const Tolerance& tolerance,
                                         const std::function<Tensors(const graph::Graph&)>& reference) {
  std::vector<Allowed> allowed(want.size(), {tolerance.relative, tolerance.relative});
  if (!tolerance.quantized) return allowed;
  for (const double steps : {kMoved, -kMoved}) {
    std::optional<Tensors> moved;
    try {
      moved = reference(with_rounding_moved(graph, steps));
    } catch (const Error&) {
      continue;  // sizes that depend on data may not fit any more
    }
    for (const Difference& change : compare(*moved, want)) {
      if (!std::isfinite(change.error)) continue;
      Allowed& most = allowed[change.output];
      const auto count = static_cast<double>(std::max<int64_t>(1, loop::element_count(want[change.output])));
      most.largest = std::max(most.largest, tolerance.relative + 2 * change.error);
      most.mean = std::max(most.mean, tolerance.relative + 2 * change.mean + 2 * change.error / count);
    }
  }
  return allowed;
}

}  // namespace stridec::cli

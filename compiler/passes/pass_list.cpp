#include "compiler/passes/pass_list.h"

#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/fold_affine.h"
#include "compiler/passes/quantized.h"

namespace stridec::passes {
namespace {

constexpr Pass<graph::Graph> kPasses[] = {
    {"quantized", "products of dequantised numbers become integer products with a scale behind", contract_quantized},
    {"affine", "per-channel scales and shifts behind linear operators go into their weights", fold_affine},
};

}  // namespace

const PassList<graph::Graph>& graph_passes() {
  static const PassList<graph::Graph> kList = {
      .stage = "graph",
      .origin = {"import", "the model as its frontend reads it"},
      .rows = kPasses,
      .verify = [](const graph::Graph& graph,
                   std::string_view after) { graph::verify(graph, ops::shape_table(), after); },
      .print = [](const graph::Graph& graph) { return graph::to_string(graph); }};
  return kList;
}

}  // namespace stridec::passes

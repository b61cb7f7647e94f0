#include "compiler/passes/pass_list.h"

#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/autocast.h"
#include "compiler/passes/byte_tables.h"
#include "compiler/passes/fold_affine.h"
#include "compiler/passes/join_siblings.h"
#include "compiler/passes/quantized.h"
#include "compiler/passes/requantize.h"
#include "compiler/passes/sink_scales.h"

namespace stridec::passes {
namespace {

constexpr Pass<graph::Graph> kPasses[] = {
    {"quantized", "products of dequantised numbers become integer products with a scale behind",
     contract_quantized},
    {"requantize", "sums of scaled integers that are quantised again need one scale each, and no division",
     requantize},
    {"tables", "long chains of operators from one byte to another become tables of 256", make_byte_tables},
    {"scales", "numbers that the inputs of a product are multiplied by go behind it", sink_scales},
    {"affine", "per-channel scales and shifts behind linear operators go into their weights", fold_affine},
    {"siblings", "products of one value with several constant matrices become one", join_siblings},
};

constexpr Pass<graph::Graph, DType> kPrecisionPasses[] = {
    {"autocast", "products take narrow floats and add up in f32 (--precision)", autocast},
};

void verify(const graph::Graph& graph, std::string_view after) {
  graph::verify(graph, ops::shape_table(), after);
}
std::string print(const graph::Graph& graph) { return graph::to_string(graph); }

}  // namespace

const PassList<graph::Graph>& graph_passes() {
  static const PassList<graph::Graph> kList = {.stage = "graph",
                                               .origin = {"import", "the model as its frontend reads it"},
                                               .rows = kPasses,
                                               .verify = verify,
                                               .print = print};
  return kList;
}

const PassList<graph::Graph, DType>& precision_passes() {
  static const PassList<graph::Graph, DType> kList = {
      .stage = "graph", .origin = {}, .rows = kPrecisionPasses, .verify = verify, .print = print};
  return kList;
}

}  // namespace stridec::passes

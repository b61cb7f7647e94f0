#include "compiler/passes/pass_list.h"

#include "compiler/passes/autocast.h"
#include "compiler/passes/byte_tables.h"
#include "compiler/passes/concat_pads.h"
#include "compiler/passes/fold_affine.h"
#include "compiler/passes/join_siblings.h"
#include "compiler/passes/quantized.h"
#include "compiler/passes/requantize.h"
#include "compiler/passes/sink_scales.h"

namespace stridec::passes {
namespace {

using graph::Graph;
using Context = PassContext;

constexpr std::string_view kStage = "graph";

constexpr Pass kPasses[] = {
    {"quantized", kStage, RunsOn::kGraph,
     "Rewrite dequantise-GEMM-quantise as an integer GEMM followed by a scale.",
     [](Graph& graph, const Context&) { contract_quantized(graph); }},
    {"requantize", kStage, RunsOn::kGraph, "Fold requantisation into one multiplication for each addend.",
     [](Graph& graph, const Context&) { requantize(graph); }},
    {"byte_tables", kStage, RunsOn::kGraph,
     "Replace elementwise chains from 8 bits to 8 bits by a 256-entry table.",
     [](Graph& graph, const Context&) { make_byte_tables(graph); }},
    {"concat_pads", kStage, RunsOn::kGraph,
     "Concatenate padded pieces instead of adding them (gradients of tensors that are split).",
     [](Graph& graph, const Context&) { concat_pads(graph); }},
    {"scales", kStage, RunsOn::kGraph, "Move scalar factors from a GEMM's inputs to its output.",
     [](Graph& graph, const Context&) { sink_scales(graph); }},
    {"affine", kStage, RunsOn::kGraph,
     "Fold per-channel scales and biases into weights (batch-norm folding).",
     [](Graph& graph, const Context&) { fold_affine(graph); }},
    {"siblings", kStage, RunsOn::kGraph, "Merge GEMMs with a common input and constant weights (Q, K, V).",
     [](Graph& graph, const Context&) { join_siblings(graph); }},
    {"autocast", kStage, RunsOn::kGraph,
     "Round GEMM operands to the type of --precision, and accumulate in f32.",
     [](Graph& graph, const Context& c) { autocast(graph, c.factors); }},
};

}  // namespace

std::span<const Pass> graph_passes() { return kPasses; }

}  // namespace stridec::passes

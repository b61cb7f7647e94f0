// Autocast: GEMMs and convolutions take narrow operands (16-bit floats, or tf32, which has a shorter mantissa
// but is stored as f32) and accumulate in f32. Everything else (sums, normalisations, softmax, losses, state,
// inputs and outputs) keeps its type.
//
// An operand is rounded once, where it is produced, however many GEMMs read it. Operators that only move data
// (views, concat, pad) move the rounded values. GEMM results are f32, so bias, activation and residual are
// applied before any rounding. Weights are rounded at compile time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace stridec::passes {

struct Precision {
  std::string_view name, meaning;
  DType factors;  // type of the operands of f32 GEMMs
  // For `verify`: relative to the largest magnitude of an f32 output, for whole models.
  double tolerance;
};
std::span<const Precision> precisions();            // the first is the default
const Precision& precision(std::string_view name);  // Error kUsage, code "unknown-precision"

// Describes the precision of an f32 primitive for people: "f16 factors, f32 sum" for a GEMM, "as its reader"
// for an operator that only moves data, "f32" for everything else.
std::string computes_in(graph::OpKind kind, const Precision& precision);

void autocast(graph::Graph& graph, DType factors);  // f32: changes nothing

}  // namespace stridec::passes

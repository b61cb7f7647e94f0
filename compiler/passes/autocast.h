// Lower precision where it pays: products of matrices and convolutions take narrow floats (or tf32, whose numbers are as
// short though they are stored as f32) and add up in f32; everything
// else (sums, normalisations, softmax, losses, state, inputs and outputs) stays what it is.
//
// A factor is rounded once, where it is made, whoever multiplies it; what moves data and computes nothing (views,
// concat, pad) moves the rounded numbers. Results of products are f32, so that bias, activation and residual see the
// sum before any rounding. Weights are rounded at compile time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/graph/graph.h"

namespace stridec::passes {

struct Precision {
  std::string_view name, meaning;
  DType factors;     // of products of f32
  double tolerance;  // `verify`: of the largest magnitude of an output in f32, through whole models
};
std::span<const Precision> precisions();            // the first is the default
const Precision& precision(std::string_view name);  // Error kUsage, code "unknown-precision"

// What a primitive on f32 is under a precision, for people: "f16 factors, f32 sum" of a product, "as its reader" of what
// computes nothing, "f32" of everything else.
std::string computes_in(graph::OpKind kind, const Precision& precision);

void autocast(graph::Graph& graph, DType factors);  // f32: changes nothing

}  // namespace stridec::passes

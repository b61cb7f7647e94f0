// The differences that `verify` allows by default. They follow the types that a model computes in.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/compare.h"
#include "compiler/graph/graph.h"
#include "compiler/passes/autocast.h"

namespace stridec::cli {

struct Tolerance {
  double relative = 0;  // to the largest magnitude of an output
  std::string reason;   // "f32", "f16", "given", "no result is rounded"
  // The model rounds to integers or to floats of 8 bits and fewer on the way. Generated code may round a
  // value that is almost halfway between two steps to the other one than the reference does.
  bool quantized = false;
};

// From the narrowest float type that the graph computes in, at least that of `precision`. None if the graph
// only moves floats.
Tolerance default_tolerance(const graph::Graph& graph, const passes::Precision& precision);
std::string to_string(const Tolerance& tolerance);

// The graph where every value has `steps` steps added before it is rounded to an integer or to a float of 8
// bits and fewer.
graph::Graph with_rounding_moved(const graph::Graph& graph, double steps);

// What is allowed for one result, relative to its largest magnitude.
struct Allowed {
  double largest, mean;
  bool exceeded_by(const Difference& d) const { return d.error > largest || d.mean > mean; }
};

// For each result of the graph, which are `want` where no rounding is moved. Of a quantised model it is more
// than `relative` where the result depends on roundings: `reference` runs the graph with every rounding moved
// by a five hundredth of a step up and down. Twice the larger change is allowed, and in the mean twice the
// mean change and one element that changes as much as any.
std::vector<Allowed> allowed_differences(const graph::Graph& graph, const Tensors& want,
                                         const Tolerance& tolerance,
                                         const std::function<Tensors(const graph::Graph&)>& reference);

}  // namespace stridec::cli

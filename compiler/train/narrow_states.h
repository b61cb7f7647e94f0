// States in bf16 that are rounded at random (stochastic rounding), so that updates below half a unit in the
// last place still move a weight on average. Weights, the optimizer's states and moving averages take 2 bytes
// an element instead of 4; computing stays in f32.
#pragma once

#include <map>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/ops/term.h"

namespace stridec::train {

// f32 as bf16: one of the two neighbours, with a probability such that the mean is x. Numbers are drawn anew
// in each run. Infinity and NaN stay.
ops::Term round_at_random(ops::Term x, int64_t seed);

// Turns those of the states that are f32, with their initial values, into bf16 states, and returns them.
std::vector<graph::ValueId> narrow_states(graph::Graph& graph, const std::vector<graph::ValueId>& states);

// Everything that reads one of these bf16 states reads it as f32: returns these values by state. Nodes have
// other numbers afterwards.
std::map<graph::ValueId, graph::ValueId> read_widened(graph::Graph& graph,
                                                      const std::vector<graph::ValueId>& states);

}  // namespace stridec::train

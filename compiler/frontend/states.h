// States: an input and an output of a model that are one thing, kept from run to run.
//
// `--state past=present` says that what the model gives as `present` is what it takes as `past` the next time: neither is
// the caller's any more. A `*` in both stands for the same text: `--state past_*=present_*`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::frontend {

struct StatePattern {
  std::string input, output;  // with one `*` each, or none
};
StatePattern parse_state(std::string_view text);  // "past_*=present_*"; throws a usage Error

// Turns inputs into states of their names that start at zero and hold the outputs' values after a run. Throws a usage
// Error where a pattern names nothing, or what does not fit together.
void keep_states(graph::Graph& graph, const std::vector<StatePattern>& patterns);

}  // namespace stridec::frontend

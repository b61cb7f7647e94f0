// States: an input and an output of a model become one tensor that is kept between runs.
//
// `--state past=present`: the value of output `present` is the value of input `past` in the next run; the
// caller no longer sees either. A `*` in both names matches the same text: `--state past_*=present_*`. Sizes
// that are symbols become sizes of the context (graph/context_sizes.h).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::frontend {

struct StatePattern {
  std::string input, output;  // each with one `*`, or neither
};
StatePattern parse_state(std::string_view text);  // "past_*=present_*"; throws a usage Error

// Converts the inputs to states, named after them, which start at zero and take the outputs' values after a
// run. Throws a usage Error if the types of input and output differ, and if a pattern matches nothing, unless
// `absent` is set (ImportOptions).
void keep_states(graph::Graph& graph, const std::vector<StatePattern>& patterns,
                 std::set<std::string>* absent = nullptr);

}  // namespace stridec::frontend

// The nodes of the model that the values of a nest come from.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// The origin of each value, by its id. Values that a pass has made get the node of what is computed from
// them, such as the result that their statements replace; if nothing is, that of what they are computed from.
// Invalid: there is neither, as for an index that only an address uses.
std::vector<Origin> origins_of(const Nest& nest);
NodeId node_of(const Nest& nest, ValueId value);  // of its origin

// Gives the values without an origin this node: those of a nest, or of statements, that a pass makes for it.
void attribute(Nest& nest, NodeId node);

// The text of text.h, in which each statement of a nest of several nodes ends with its node, by position in
// the list of nodes, and the number of the value there: "%3 : f32 = mul %1 %2 from 1.4". It parses as well.
std::string to_string_with_origins(const Program& program);
std::string to_string_with_origins(const Program& program, const Nest& nest);

}  // namespace stridec::loop

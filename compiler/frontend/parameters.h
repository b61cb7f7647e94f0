// Parameters: weights that keep their name and that a user may replace after compilation.
//
// `--refit 'encoder.*'` selects weights of floats or 8-bit integers by name; `*` matches any text. These stay
// constants:
// - weights whose value decides sizes or the choice of operations (the exponent of a Pow, the scales of a
//   Resize), and integers of more than a byte, which are sizes, axes and indices;
// - weights of one element, unless a pattern without `*` names them: factors and limits decide what fuses.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::frontend {

// Whether the patterns make a parameter of a constant with this name and type.
bool selects(const std::vector<std::string>& patterns, std::string_view name, const graph::Type& type);

// Makes parameters of the graph's constants whose names match.
void make_parameters(graph::Graph& graph, const std::vector<std::string>& patterns);

// Throws a usage Error that names every pattern without a parameter in the graph, unless `absent` is set
// (ImportOptions).
void check_parameters(const graph::Graph& graph, const std::vector<std::string>& patterns,
                      std::set<std::string>* absent = nullptr);

}  // namespace stridec::frontend

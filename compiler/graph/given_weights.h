// Weights that come with a model in another file, by the model's names.
#pragma once

#include <map>
#include <string>

#include "compiler/graph/graph.h"

namespace stridec::graph {

struct GivenWeight {
  Type type;  // constant sizes
  Data data;  // row-major
};
using GivenWeights = std::map<std::string, GivenWeight>;

}  // namespace stridec::graph

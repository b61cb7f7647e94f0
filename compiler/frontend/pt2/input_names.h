// The artifact's names of a program's inputs.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/pt2/program.h"
#include "compiler/frontend/pt2/tree_spec.h"

namespace stridec::pt2 {

// By place in program.inputs; empty for what the user does not give.
struct InputNames {
  std::vector<std::string> names;  // unique: "past.0.key"
  std::vector<Path> paths;
};
InputNames input_names(const Program& program);

}  // namespace stridec::pt2

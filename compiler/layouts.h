// `--layout image=nhwc`: the order in which the dims of an input, output or state lie in memory.
//
// Shapes, and what a dim means, stay the model's. The artifact uses tensors with strides of this order
// without a copy, and the passes know the order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec {

struct Layout {
  std::string name;   // of the tensor
  std::string order;  // letters of the dims ("nhwc") or their numbers ("0,2,3,1"), outermost first
};
// Parses "image=nhwc" and "image=0,2,3,1". Throws a usage Error, also for a name that occurs twice.
std::vector<Layout> parse_layouts(const std::vector<std::string>& texts);

// Changes the strides of the inputs, outputs and states of this name. Steps that need row-major memory get a
// copy. Returns false if there are none. Throws a usage Error if the order is not one of the tensor's dims.
bool declare_layout(loop::Program& program, const Layout& layout);

// The names of the inputs, outputs and states, in quotes.
std::vector<std::string> value_names(const loop::Program& program);

}  // namespace stridec

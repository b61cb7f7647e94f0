// What every backend makes out of a nest, and what the host program needs in order to call it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::codegen {

// The weights that a launch reads: panels of equal size, of one panel in `run` neighbouring tasks each (stridec_abi_ahead).
struct WeightPanels {
  loop::BufferId buffer;
  sym::Expr bytes = 0, panels = 1, run = 1;
};

// One nest as text: a translation unit that defines the function KERNEL (a macro that the build sets to a
// name made of the text's hash, so that equal texts become one function). Names in the text are canonical
// (p0, p1, ... for buffers, s0, s1, ... for sizes, m0, m1, ... for messages): equal kernels of different
// nests are equal texts.
struct Kernel {
  std::string text;
  std::vector<std::string> support;     // translation units that define what the text calls, under names of
                                        // their own; equal ones are built once
  std::vector<loop::BufferId> buffers;  // what p0, p1, ... are in this launch
  std::vector<sym::Expr> sizes;         // what s0, s1, ... are: expressions of the program's symbols
  std::vector<std::string> messages;  // sentences of data checks; their numbers follow the sizes as arguments
  sym::Expr tasks = 1;                // size of the flattened parallel domain
  sym::Expr grain = 1;                // least number of tasks that is worth a thread
  sym::Expr scratch_bytes = 0;        // private memory of one thread
  std::optional<WeightPanels> weights;
  bool movable = false;     // its parts take tasks from each other; they record no failures
  bool asks_ahead = false;  // for what a later launch begins with, where it is told
};

}  // namespace stridec::codegen

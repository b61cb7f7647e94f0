// The result of code generation for one nest: the kernel's text and the data that the host program needs to
// launch it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::codegen {

// The weights that a launch reads: panels of equal size, each read by `run` consecutive tasks
// (stridec_abi_ahead).
struct WeightPanels {
  loop::BufferId buffer;
  sym::Expr bytes = 0, panels = 1, run = 1;
};

// One nest as text: a translation unit that defines the function KERNEL (a macro that the build sets to a
// name derived from the text's hash, so that equal texts become one function). Names in the text are
// canonical (p0, p1, ... for buffers, s0, s1, ... for sizes, m0, m1, ... for messages): equal kernels of
// different nests have equal texts.
struct Kernel {
  std::string text;
  // Translation units that define the functions that the text calls, under names of their own; equal ones are
  // built once.
  std::vector<std::string> support;
  std::vector<std::string> c_support;   // the same in C
  std::vector<loop::BufferId> buffers;  // the buffers that p0, p1, ... refer to in this launch
  std::vector<sym::Expr> sizes;         // the values of s0, s1, ...: expressions of the program's symbols
  // Sentences of data checks; their numbers follow the sizes in the arguments.
  std::vector<std::string> messages;
  sym::Expr tasks = 1;          // size of the flattened parallel domain
  sym::Expr grain = 1;          // least number of tasks worth a thread
  sym::Expr scratch_bytes = 0;  // private memory per thread
  std::optional<WeightPanels> weights;
  bool movable = false;     // threads may steal tasks from each other; the kernel records no failures
  bool asks_ahead = false;  // prefetches the first weights of a later launch, if the host passes them
};

}  // namespace stridec::codegen

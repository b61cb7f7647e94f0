// Which operations of a kernel come from which node of the model, and which nodes are computed more often
// than the model asks for, because fusion computes them where they are used instead of storing them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/loop/kernels.h"

namespace stridec::schedule {

// What a kernel does for a node.
struct NodeWork {
  std::string node;
  // Statements by name, such as "mul" or "reduce sum"; empty: they are those of another node, or were folded.
  std::map<std::string, int> statements;
  double operations = 0;  // additions, multiplications and the like in a run, at typical sizes
};

// For each node of the kernel, in its order. Constants, index arithmetic and binds are not listed.
std::vector<NodeWork> work_of(const loop::Program& program, const loop::Kernel& kernel);

// A node of which an operation is executed more often than before fusion.
struct RepeatedNode {
  std::string node;
  double times = 1;       // of the operation that is repeated most, in relation to the program before
  double operations = 0;  // more than there, of a run
  std::vector<const loop::Kernel*> kernels;  // that execute such operations, in order
};

// In the order of the kernels. Sizes are typical ones. `before`: the program as lowered.
std::vector<RepeatedNode> repeated_nodes(const loop::Program& before, const loop::Program& program,
                                         const std::vector<loop::Kernel>& kernels);

}  // namespace stridec::schedule

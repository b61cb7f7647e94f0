// Searches for the first operation of a model whose compiled code differs from the interpreter, and for the
// smallest part of the model around it that still differs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare.h"
#include "cli/library.h"
#include "cli/progress.h"
#include "cli/tolerance.h"
#include "compiler/compile.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"

namespace stridec::cli {

// The reference program of a model: each operation of the imported graph, lowered separately. No pass runs on
// it, so the comparison covers passes too.
loop::Program reference_of(const graph::Graph& graph);

// Inputs, and the sizes of the context in which they run.
struct Given {
  Tensors inputs;
  Sizes context;
};

// Runs the interpreter with a progress bar, because it is slow.
Tensors interpret(const loop::Program& program, const Given& given, ProgressPrinter& progress);

// Runs this build's code for the first CPU variant.
Tensors run_compiled(const Compilation& made, const Given& given);

// A difference of one operation's results.
struct FirstDifference {
  graph::NodeId node;     // of the imported graph
  std::string text;       // "node 3 'a' (Add), add, in kernel 'add' (fused with ...)"
  Difference difference;  // Difference::output counts the node's outputs; element < 0: the code failed
  std::string error;      // the message of that failure
  loop::HostTensor want;
  std::map<graph::ValueId, loop::HostTensor> values;  // the interpreter's, of all top-level operations
};

struct DifferenceSearch {
  const Compilation& made;  // of the model
  const CompileOptions& options;
  const Given& given;
  const Tolerance& tolerance;
  ProgressPrinter& progress;
};

// The first top-level node whose results differ between this build's code and the interpreter; nullopt if all
// agree. The interpreter runs once, with every node's values as results. Each step of a bisection compiles
// the graph with the values of one node as results, so fusion with later nodes cannot hide a difference.
std::optional<FirstDifference> first_difference(const DifferenceSearch& search);

// A part of the model that differs. Its inputs may be intermediate values of the model.
struct SmallestPart {
  graph::Graph graph;
  Tensors inputs, expected;
  size_t nodes = 0;
};
// Reduces the operations that lead to the difference to as few as still differ. The search is greedy and ends
// after some seconds.
SmallestPart smallest_part(const DifferenceSearch& search, const FirstDifference& found);

}  // namespace stridec::cli

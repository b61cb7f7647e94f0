// verify --steps: compares several runs of a function that keeps states, a training step above all, with the
// interpreter: the outputs and every state after each run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/progress.h"
#include "cli/tolerance.h"
#include "compiler/frontend/import.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"

namespace stridec::cli {

struct StepsToVerify {
  Library& library;                // the function is selected
  const graph::Graph& graph;       // of the function, as imported
  const loop::Program& reference;  // lowered from it
  double tolerance;                // relative to the largest magnitude of an output or a state
  std::vector<std::string> files;  // of the inputs; "": random
  std::vector<frontend::DimRange> dims;
  int64_t steps;
  uint64_t seed = 0;  // of random inputs
};

struct VerifiedSteps {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  std::vector<std::string> noisy;  // weights whose gradients are rounding errors alone
  std::string failure;             // "": all agree
};

// Each step starts from the interpreter's states, so that rounding errors do not accumulate over steps. The
// interpreter also runs from states that are perturbed by a few roundings. A difference beyond the tolerance
// is allowed if a perturbed result differs from the interpreter's by as much. A weight is noisy
// if the perturbation changes one of its states by a twentieth: its gradient is rounding errors alone, which
// Adam scales up to a full step. A noisy weight may differ by the largest change of any weight in the step,
// and its states are compared relative to the largest state of their kind.
VerifiedSteps verify_steps(const StepsToVerify& what, ProgressPrinter& progress);

// "optimizer.exp_avg.fc.weight" is the state of kind "optimizer.exp_avg" of "fc.weight". A state whose
// name does not end with the name of another state is a weight, of kind "".
struct StateOfWeight {
  std::string name, weight, kind;
};
// In the order in which the function reads the weights, each weight before the optimizer's states of it.
std::vector<StateOfWeight> states_in_order(const graph::Graph& graph);

}  // namespace stridec::cli

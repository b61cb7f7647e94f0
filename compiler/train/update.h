// One update of all parameters by an optimizer, and the states that it keeps.
#pragma once

#include <string>
#include <vector>

#include "compiler/ops/term.h"
#include "compiler/train/settings.h"

namespace stridec::train {

// A weight that is trained: the name in the model, and its state.
struct Weight {
  std::string name;
  ops::Term value;
};

// A new state. `initial`: of all elements; if it is not 0, the type is a scalar.
ops::Term state(graph::Builder& b, const std::string& name, const graph::Type& type, double initial = 0);
// The state has the value `to` in the next run.
void update(graph::Builder& b, ops::Term of, ops::Term to);
// Narrow floats as f32, for computing.
ops::Term wide_enough(ops::Term x);

// Updates the weights by their gradients, which are wide enough, clipped as the settings say. Returns the
// norm of all gradients together before clipping, in f32.
//
// States: optimizer.step, optimizer.<StateRow::name>.<weight>, ema.<weight>.
ops::Term update_parameters(graph::Builder& b, const Settings& settings, const std::vector<Weight>& weights,
                            std::vector<ops::Term> gradients);

}  // namespace stridec::train

// States of a training: values that persist from run to run.
#pragma once

#include <string>

#include "compiler/ops/term.h"

namespace stridec::train {

// A new state. `initial`: of all elements; if it is not 0, the type is a scalar.
ops::Term state(graph::Builder& b, const std::string& name, const graph::Type& type, double initial = 0);
// The state has the value `to` in the next run.
void update(graph::Builder& b, ops::Term of, ops::Term to);
// Narrow floats as f32, for computing.
ops::Term wide_enough(ops::Term x);

}  // namespace stridec::train

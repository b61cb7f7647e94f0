// One update of all parameters by an optimizer, and the states that it keeps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"
#include "compiler/train/loss_scale.h"
#include "compiler/train/settings.h"
#include "compiler/train/states.h"

namespace stridec::train {

// A weight that is trained: the name in the model, and its state.
struct Weight {
  std::string name;
  ops::Term value;
  std::optional<ops::Term> wide = {};  // what the model reads, if it is the state in another type
  ops::Term read() const { return wide.value_or(value); }
};

struct Updated {
  std::optional<ops::Term> norm;    // of all gradients together before clipping, in f32; if it is computed
  std::optional<ops::Term> finite;  // with a scale: a bool scalar, whether the update took place
};
// Updates the weights by their gradients, which are wide enough, clipped as the settings say. With a `scale`,
// which is updated too, nothing else changes if a gradient is not finite.
//
// States: optimizer.step, optimizer.<StateRow::name>.<weight>, ema.<weight>.
Updated update_parameters(graph::Builder& b, const Settings& settings, const std::vector<Weight>& weights,
                          std::vector<ops::Term> gradients, LossScale* scale);

}  // namespace stridec::train

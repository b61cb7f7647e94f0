// Dynamic loss scaling by the rules of torch.amp.GradScaler: narrow floats have too few exponents for small
// gradients, so the loss is multiplied by a factor and the gradients are divided by it. An update whose
// gradients are not finite is skipped, and halves the factor, which stays at least 1; 2,000 updates in a row
// double it.
//
// States: loss_scale and loss_scale.good_steps, both f32 scalars.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::train {

class LossScale {
 public:
  explicit LossScale(graph::Builder& builder);

  ops::Term scaled(ops::Term loss) const;
  // `gradient`: f32 or f64.
  ops::Term unscaled(ops::Term gradient) const;
  // Updates the states. `finite`: a bool scalar.
  void advance(ops::Term finite);

 private:
  graph::Builder& b_;
  ops::Term scale_, good_steps_;
};

}  // namespace stridec::train

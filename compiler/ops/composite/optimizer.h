// One elementwise update of a parameter tensor by an optimizer. `rate` (learning rate) and `step` (number of
// updates so far) are rank-0 terms of the parameter's dtype. The results are the new parameter, then the new
// states in argument order.
//
// The formulas are those of ai.onnx.preview.training 1.
#pragma once

#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct MomentumOptions {
  double alpha = 0;  // decay of the velocity
  double beta = 0;   // weight of the gradient from the second step on; it is 1 in the first
  double l2 = 0;     // adds l2 * parameter to the gradient
  bool nesterov = false;
};
std::vector<Term> momentum_step(Term rate, Term step, Term parameter, Term gradient, Term velocity,
                                const MomentumOptions& options);

struct AdagradOptions {
  double decay = 0;  // rate / (1 + step * decay)
  double epsilon = 1e-6;
  double l2 = 0;
};
std::vector<Term> adagrad_step(Term rate, Term step, Term parameter, Term gradient, Term square_sum,
                               const AdagradOptions& options);

struct AdamOptions {
  double alpha = 0.9, beta = 0.999;  // decay of the mean and of the mean square
  double epsilon = 1e-6;
  double l2 = 0;
  double decay_after = 0;  // scales the new parameter by 1 - decay_after
};
// Bias correction applies from step 1 on; step 0 uses the rate unchanged.
std::vector<Term> adam_step(Term rate, Term step, Term parameter, Term gradient, Term mean, Term mean_square,
                            const AdamOptions& options);

}  // namespace stridec::ops

// Connectionist temporal classification (Graves et al. 2006), as torch.nn.functional.ctc_loss computes it.
#pragma once

#include <string>

#include "compiler/ops/term.h"

namespace stridec::train {

// The negative logarithm of the probability that the steps spell the labels, f32 or f64 [batch]; infinity
// where they cannot. logs [steps, batch, classes]: logarithms of probabilities; labels [batch, most], i64.
// steps_used and lengths, i64 [batch]: how many steps and labels of each row count, from its beginning.
//
// The recursion over steps is in logarithms. Instead of -infinity, which has no usable gradient, it has
// kImpossible; an infinite loss has the gradient 0.
//
// The run's errors name labels and lengths as `label` ("label {0} of input 't'") and `length` ("input 'n'")
// say.
ops::Term ctc_loss(ops::Term logs, ops::Term labels, ops::Term steps_used, ops::Term lengths, int64_t blank,
                   const std::string& label, const std::string& length);

}  // namespace stridec::train

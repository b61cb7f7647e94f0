// Recomputes operands of late steps: an elementwise tensor that the last steps of a run read once more is
// computed a second time, by a step that reads what it is computed from anyway.
//
//   a = x . w;  h = gelu(a)               a = x . w;  h = gelu(a)
//   y = h . v                             y = h . v                (from here on, h takes no memory)
//   ...                             ->    ...
//   dv = h . dy                           da = (dy . v) * gelu'(a);  h2 = gelu(a)
//   da = (dy . v) * gelu'(a)              dv = h2 . dy
//
// Weight gradients read the operands of the forward pass: activations and normalised rows, next to tensors
// from which they are computed and which the backward pass of the activation or of the norm reads. The price
// is one more store of the tensor. (PyTorch's min-cut partitioner recomputes the same tensors.) The pass does
// not know forward from backward: it looks at memory at typical sizes, and at tensors that are live near its
// peak without being read there.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// For large buffers only. `decisions`: null if they are not recorded.
void recompute_operands(loop::Program& program, std::vector<Decision>* decisions);

}  // namespace stridec::schedule

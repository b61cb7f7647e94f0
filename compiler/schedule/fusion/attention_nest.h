// Builds attention's backward pass as one nest (kernels/flash_backward.h).
#pragma once

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/attention_passes.h"

namespace stridec::schedule {

// Adds the nest to `into`, a copy of `program` with the buffer `log_sum_exp`, and returns its id. The
// statements after the sums of dq, dk and dv are those of `steps`. Nothing if one of them is not pointwise.
std::optional<loop::NestId> add_backward_nest(loop::Program& into, const loop::Program& program,
                                              const loop::Steps& steps, const ForwardPass& forward,
                                              const BackwardPass& backward, loop::BufferId log_sum_exp);

}  // namespace stridec::schedule

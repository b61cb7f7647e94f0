// Weights of GPU matrix products with their dims in the order in which tiles read them.
#pragma once

#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Where a factor of a nest with a matrix schedule (kernels/cuda_matrix.h) is a weight that is contiguous neither along
// the depth nor along its rows, as a convolution's [out, in, r, s] is, or not along the depth where the kernel wants it so:
// a copy of the weight, made by a nest of Program::prepack, whose last dims are the dims of the depth in the schedule's
// order (of a transposed convolution's phase the elements that it reads alone). Multiply-adds by threads take those of the rows last, whichever the weight has. Nests that want the same copy
// share it. Likewise weights in windows of several neighbouring points (schedule.h), with the points' vectors last.
void order_weights(loop::Program& program);
// Whether the factor is a weight whose dims can be ordered along the depth.
bool orders_along(const loop::Program& program, const loop::Nest& nest, const kernels::Factor& factor,
                  const std::vector<sym::Expr>& depth);

// The same for loads of weights in a sum over `depth`.
struct DeepLoad {
  loop::NestId nest;
  loop::ValueId load;
  std::vector<sym::Expr> depth;
};
void order_along(loop::Program& program, const std::vector<DeepLoad>& loads);

// The same for the CPU's matrix products that compute a factor from weights on the way to scratch (few bits, scales of
// blocks): copies whose last dims are the columns, which the vectors run along.
void order_staged_weights(loop::Program& program);

}  // namespace stridec::schedule

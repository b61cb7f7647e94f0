// Reorders the dims of GPU GEMM weights into the order in which tiles read them.
#pragma once

#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Applies to a factor of a nest with a matrix schedule (kernels/cuda_matrix.h) that is a weight and
// contiguous neither along the depth nor along its rows, as a convolution's [out, in, r, s] is, or not along
// the depth where the kernel requires that. The nest reads a copy, made by a nest of Program::prepack, whose
// last dims are the depth's dims in the schedule's order. For a phase of a transposed convolution the copy
// holds only the elements it reads. Kernels that multiply by scalar multiply-adds want the dims of the rows
// last instead, whatever the weight has. Nests that want the same copy share it. Weights of windows computed
// for several neighbouring points at a time (schedule.h) are reordered likewise, with the dim of the points'
// vectors last.
void order_weights(loop::Program& program);
// Whether the factor is a weight whose dims can be reordered along the depth.
bool orders_along(const loop::Program& program, const loop::Nest& nest, const kernels::Factor& factor,
                  const std::vector<sym::Expr>& depth);

// The same for loads of weights in a sum over `depth`.
struct DeepLoad {
  loop::NestId nest;
  loop::ValueId load;
  std::vector<sym::Expr> depth;
};
void order_along(loop::Program& program, const std::vector<DeepLoad>& loads);

// The same for CPU GEMMs that compute a factor from weights on the way to scratch (low-bit values, block
// scales): the copies' last dims are the columns, which are vectorised.
void order_staged_weights(loop::Program& program);

}  // namespace stridec::schedule

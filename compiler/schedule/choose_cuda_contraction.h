// Tiles of the GPU for contractions (kernels/cuda_matrix.h), by an analytical model of a multiprocessor.
#pragma once

#include <optional>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/cuda_matrix.h"

namespace stridec::schedule {

struct RankedMatrixPlan {
  kernels::MatrixPlan plan;
  double cycles;
};

// All that fit the target, the best first; empty where the nest is no contraction with rows and columns.
std::vector<RankedMatrixPlan> matrix_plans(const loop::Program& program, const loop::Nest& nest,
                                           const GpuTarget& target);

// Nothing where a thread per point is no worse.
std::optional<loop::Schedule> choose_cuda_contraction(const loop::Program& program, const loop::Nest& nest,
                                                      const GpuTarget& target);

}  // namespace stridec::schedule

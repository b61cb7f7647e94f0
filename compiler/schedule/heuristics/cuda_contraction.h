// Chooses GPU tiles for contractions (kernels/cuda_matrix.h) by an analytical model of a multiprocessor.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/schedule/heuristics/cuda_matrix_candidates.h"

namespace stridec::schedule {

struct RankedMatrixPlan {
  kernels::MatrixPlan plan;
  double cycles;
};

// All plans that fit the target, best first. Empty if the nest is not a contraction with rows and columns.
std::vector<RankedMatrixPlan> matrix_plans(const loop::Program& program, const loop::Nest& nest,
                                           const GpuTarget& target);

struct RankedSchedule {
  loop::Schedule schedule;
  double cycles;
  std::string family;
};

// Returns a schedule, followed by variants with another plan for the GEMM sizes of these shapes; other sizes
// keep their plans. Cycles are geometric means over the shapes or, without shapes, over all sizes that the
// ranges allow. `around`: a schedule for which is_contraction_schedule() holds, or null for the result of
// choose_cuda_contraction().
std::vector<RankedSchedule> contraction_schedules(const loop::Program& program, const loop::Nest& nest,
                                                  const GpuTarget& target, std::span<const SizesOf> shapes,
                                                  const loop::Schedule* around = nullptr);
// Whether the schedule, whatever its origin, consists of these plans.
bool is_contraction_schedule(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                             const loop::Schedule& schedule);

// expected_of_product: the cycles that the model expects of a GEMM with the schedule it chooses, at each of
// the sizes that schedules are evaluated at. expected_of_memory: the cycles for the loads and stores of any
// nest at one of these sizes.
struct ExpectedAt {
  SizesOf sizes;
  double cycles, weight;
};
std::vector<ExpectedAt> expected_of_product(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target);
double expected_of_memory(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                          const SizesOf& sizes);

// Returns nothing if one thread per point is not a worse.
std::optional<loop::Schedule> choose_cuda_contraction(const loop::Program& program, const loop::Nest& nest,
                                                      const GpuTarget& target);

}  // namespace stridec::schedule

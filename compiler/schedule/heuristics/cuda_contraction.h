// Tiles of the GPU for contractions (kernels/cuda_matrix.h), by an analytical model of a multiprocessor.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
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

// The sizes of a shape: values of symbols.
using SizesOf = std::function<std::optional<int64_t>(sym::Expr)>;

struct RankedSchedule {
  loop::Schedule schedule;
  double cycles;
  std::string family;
};

// A schedule, then the same with another plan for the products that these shapes are: for others it stays as it is. Cycles
// are geometric means over the shapes (without any: over all that the ranges allow). `around`: is_contraction_schedule(),
// or null for what choose_cuda_contraction() chooses.
std::vector<RankedSchedule> contraction_schedules(const loop::Program& program, const loop::Nest& nest,
                                                  const GpuTarget& target, std::span<const SizesOf> shapes,
                                                  const loop::Schedule* around = nullptr);
// Whether the schedule, from wherever it comes, is made of these plans.
bool is_contraction_schedule(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                             const loop::Schedule& schedule);

// What the model expects of a product at the sizes that schedules are judged by, with the schedule that it chooses; of any
// nest, of what it loads and stores alone, at these sizes. In cycles.
struct ExpectedAt {
  SizesOf sizes;
  double cycles, weight;
};
std::vector<ExpectedAt> expected_of_product(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target);
double expected_of_memory(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                          const SizesOf& sizes);

// Nothing where a thread per point is no worse.
std::optional<loop::Schedule> choose_cuda_contraction(const loop::Program& program, const loop::Nest& nest,
                                                      const GpuTarget& target);

}  // namespace stridec::schedule

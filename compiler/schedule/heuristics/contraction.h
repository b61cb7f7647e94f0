// Which register tile, loop order and copies a contraction runs with: an analytical model, no measuring.
#pragma once

#include <optional>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

struct RankedPlan {
  kernels::GemmPlan plan;
  double cycles;  // of one core, for symbols at a typical size
};

// The plans that can run the nest, best first: one for each micro-kernel, role of the factors and way to read a; none where
// it is no contraction or the micro-kernels do not fit it.
std::vector<RankedPlan> contraction_plans(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target);
// All that the model tells apart: contraction_plans() with the other numbers of tiles in a task, loop orders, ways to read
// b and pieces of the depth. Each can run; best first.
std::vector<RankedPlan> contraction_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target);

// The best plan as a schedule; nothing: leave the nest to the general emitter.
std::optional<loop::Schedule> choose_contraction(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target);

}  // namespace stridec::schedule

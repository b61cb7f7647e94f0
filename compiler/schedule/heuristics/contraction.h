// Chooses the register tile, loop order and copies of a contraction by an analytical model, without
// measuring.
#pragma once

#include <optional>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

struct RankedPlan {
  kernels::GemmPlan plan;
  double cycles;  // of one core, symbols at typical sizes
};

// The plans that can run the nest, best first: one for each micro-kernel, assignment of the factors to a and
// b, and way to read a. Empty if the nest is not a contraction or no micro-kernel fits it.
std::vector<RankedPlan> contraction_plans(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target);
// All valid plans that the model distinguishes, best first: contraction_plans() with further task sizes, loop
// orders, ways to read b and splits of the depth.
std::vector<RankedPlan> contraction_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target);

// The best plan as a schedule, or nothing if the nest is left to the general emitter.
std::optional<loop::Schedule> choose_contraction(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target);

}  // namespace stridec::schedule

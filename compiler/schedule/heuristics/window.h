// Decides whether and how kernels/window_plan.h runs a contraction that is a convolution with one or more
// groups of few channels.
#pragma once

#include <optional>

#include "compiler/base/target.h"
#include "compiler/kernels/window_plan.h"

namespace stridec::schedule {

std::optional<kernels::WindowPlan> choose_window(const loop::Program& program, const loop::Nest& nest,
                                                 const kernels::Contraction& contraction,
                                                 const CpuTarget& target);
// Cycles of one core, comparable to those of RankedPlan.
double window_cycles(const loop::Program& program, const loop::Nest& nest,
                     const kernels::Contraction& contraction, const kernels::WindowPlan& plan,
                     const CpuTarget& target);
// choose_window() and variants with other numbers of outputs at a time and vectors per task; choose_window()
// comes first.
std::vector<kernels::WindowPlan> window_space(const loop::Program& program, const loop::Nest& nest,
                                              const kernels::Contraction& contraction,
                                              const CpuTarget& target);

}  // namespace stridec::schedule

// Whether a contraction is a convolution of groups of few channels, one or more, that kernels/window_plan.h can run, and how.
#pragma once

#include <optional>

#include "compiler/base/target.h"
#include "compiler/kernels/window_plan.h"

namespace stridec::schedule {

std::optional<kernels::WindowPlan> choose_window(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target);
// Of one core, as RankedPlan's.
double window_cycles(const loop::Program& program, const loop::Nest& nest, const kernels::WindowPlan& plan,
                     const CpuTarget& target);
// choose_window() with other numbers of outputs at a time and of vectors in a task; its own first.
std::vector<kernels::WindowPlan> window_space(const loop::Program& program, const loop::Nest& nest,
                                              const CpuTarget& target);

}  // namespace stridec::schedule

// Whether a contraction is a depthwise convolution that kernels/window_plan.h can run, and how.
#pragma once

#include <optional>

#include "compiler/base/target.h"
#include "compiler/kernels/window_plan.h"

namespace stridec::schedule {

std::optional<kernels::WindowPlan> choose_window(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target);
// choose_window() with other numbers of outputs at a time and of vectors in a task; its own first.
std::vector<kernels::WindowPlan> window_space(const loop::Program& program, const loop::Nest& nest,
                                              const CpuTarget& target);

}  // namespace stridec::schedule

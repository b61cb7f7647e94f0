// Which neighbouring points of a nest a GPU's thread does at once.
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {

// The nest's dims as its stores run through memory, the dim with the smallest step last, so that threads that are
// neighbours write neighbours. Empty: they are so, or order matters.
LoopPlan::Dims memory_order(const loop::Program& program, const loop::Nest& nest);

// For a nest of small windows (kernels/point_window.h): vectors along the dim that is contiguous in memory, and a few
// points along one or two that windows slide over, where neighbours share most of what they load; fewer for runs whose
// points would not fill the device so. Whether the nest is one. Weights may have another order: theirs is ours to choose
// (order_weights.h).
bool choose_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                   LoopPlan& plan);

// All such blocks, what a model takes for the fastest first, for `scale` times the typical number of points.
std::vector<std::vector<LoopPlan::Split>> point_blocks(const loop::Program& program, const loop::Nest& nest,
                                                       const GpuTarget& target, double scale = 1);

// Cycles of a multiprocessor's clock that the fastest of them takes, with the dims in memory_order(), where memory keeps up.
// Nothing: there is none.
std::optional<double> point_cycles(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target);

}  // namespace stridec::schedule

// Chooses which neighbouring points of a nest one GPU thread computes together.
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {

// The nest's dims in the memory order of its stores, the dim with the smallest stride last, so that
// neighbouring threads write neighbouring elements (coalesced). Empty if the dims are in this order already,
// or their order matters.
LoopPlan::Dims memory_order(const loop::Program& program, const loop::Nest& nest);

// Sets the points per thread for a nest of small windows (kernels/point_window.h) and returns whether the
// nest is one. A thread computes a vector along the dim that is contiguous in memory and a few points along
// one or two dims that windows slide over, where neighbours share most of their loads. Runs too small to fill
// the device that way use fewer points. The layout of weights does not matter, because order_weights.h can
// change it.
bool choose_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                   LoopPlan& plan);

// All such point blocks, those the model expects to be fastest first, for `scale` times the typical number of
// points.
std::vector<std::vector<LoopPlan::Split>> point_blocks(const loop::Program& program, const loop::Nest& nest,
                                                       const GpuTarget& target, double scale = 1);

// Cycles of a multiprocessor that the fastest block takes, with the dims in memory_order(), if memory keeps
// up. Nothing if there is no block.
std::optional<double> point_cycles(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target);

}  // namespace stridec::schedule

// Emits kernels whose threads share the loops of a point: cooperative reductions and scans.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// One thread group (a warp or a block) per point: its threads split the loops of a point, combine sums by
// shuffles, and keep in registers what several loops read.
DeviceNest emit_cooperative(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// One thread group per point of a nest whose only loop is a prefix sum or a similar scan
// (loop::accumulation_of).
DeviceNest emit_scans(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

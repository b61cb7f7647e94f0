// Kernels whose threads share the loops of a point: cooperative reductions and scans.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// A team of threads (a warp, or a block) per point: the loops of a point are dealt out to its threads, sums meet by
// shuffles, and what several loops read stays in registers between them.
DeviceNest emit_cooperative(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// A team of threads per point of a nest whose only loop is a running sum or the like (loop::accumulation_of).
DeviceNest emit_scans(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

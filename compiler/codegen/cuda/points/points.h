// Emits nests without a template: points, windows and transposing tiles.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// One thread per point of the parallel dims; loops inside a point run in the thread.
DeviceNest emit_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// One thread per block of neighbouring points, for nests of small windows; sizes that do not fit use one
// thread per point.
DeviceNest emit_windows(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// One thread block per tile of points, for nests that load along one dim of memory and store along another.
DeviceNest emit_tiles(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

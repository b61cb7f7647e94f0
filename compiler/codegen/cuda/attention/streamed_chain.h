// Emits chains that stream over blocks of columns (kernels/streamed_chain.h) by mma.sync: attention's
// backward pass with any mask and head size, on any GPU with tensor cores for 16-bit floats.
//
// A thread block has a tile of rows, 16 per warp, in shared memory, and iterates over blocks of columns,
// which it prefetches into a ring buffer. Values between two products stay in registers, in the layout of an
// mma result. The next mma takes its first operand in the same layout, so nothing is shuffled.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

DeviceNest emit_streamed_chain(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

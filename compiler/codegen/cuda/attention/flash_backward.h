// Emits attention's backward pass for Hopper (kernels/flash_backward.h). Every sum has a fixed order, so that
// results do not depend on the run.
//
// Three launches share a workspace:
//   1. of each row the sum of o times its gradient, and the log-sum-exp as a power of two, padded to whole
// tiles;
//   2. the products. A thread block takes a tile of keys and walks over the tiles of rows that see it. dK
// and dV
//      stay in registers; dQ's part of each step is added to an f32 buffer when its turn comes, by bulk
// additions
//      in the order of the tiles of keys;
//   3. dQ from that buffer.
//
// A block of the second launch has two warp groups that multiply, one warp that loads, by TMA, and two that
// add.
// A tile waits for a turn of tiles with smaller numbers only, which are running or done. Source: Shah et al.,
// "FlashAttention-3", whose tiles these are; tests/gpu/attention_backward measures the alternatives.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Requires fits_flash_backward(). The last choice, for more tiles than 31 bits count or sizes of 0, runs the
// nest's loops.
DeviceNest emit_flash_backward(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

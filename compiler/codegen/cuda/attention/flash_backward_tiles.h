// Attention's backward pass for Hopper by tiles of keys, for any number of keys.
//
// Three launches share a workspace:
//   1. per row: the sum of o times its gradient, and the log-sum-exp times log2(e), padded to whole tiles;
//   2. the products: a thread block takes a tile of keys and iterates over the tiles of rows that see it.
//      dK and dV stay in registers. The block adds each step's part of dQ to an f32 buffer by bulk
//      reductions, in the order of the tiles of keys;
//   3. dQ from that buffer.
//
// A block of the second launch has two warp groups that multiply, one warp that loads by TMA, and two that
// add. A tile waits for its turn to add, and only for tiles with smaller numbers, which are running or done.
// Source: Shah et al., "FlashAttention-3". tests/gpu/attention_backward measures alternatives.
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash_backward.h"

namespace stridec::codegen::cuda {

// Nothing if TMA does not support a factor.
std::optional<DeviceChoice> backward_of_tiles(const loop::Program& program, const loop::Nest& nest,
                                              const kernels::FlashBackward& flash, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

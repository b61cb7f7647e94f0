// Attention's backward pass for Hopper where a head has few keys: a thread block takes all keys of a head.
//
// Two launches: each row's log-sum-exp and delta (BackwardFrame::rows_kernel), and the products. dK and dV
// stay in registers of one to three warp groups. dS of a tile of rows goes through shared memory to the
// warp group whose turn it is, which computes dQ of the tile: no part of dQ goes through memory, and no sum
// depends on the order of blocks. Another warp loads the next tiles and the next head.
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash_backward.h"

namespace stridec::codegen::cuda {

// Nothing if every head has more keys than a block takes, or if TMA does not support a factor.
std::optional<DeviceChoice> backward_of_heads(const loop::Program& program, const loop::Nest& nest,
                                              const kernels::FlashBackward& flash, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

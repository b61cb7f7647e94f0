// Emits attention for Hopper: one warp group loads tiles by TMA, and one to four multiply (wgmma) and compute
// the softmax. Two or three of them alternate, so that one group's products overlap another's exponentials.
//
// Keys are processed from the last block to the first, so that masked blocks come first and the others run
// without their mask. Step j issues the scores of block j and the values of block j - 1, computes the softmax
// of j as soon as its scores are available, and rescales the sums only if a row's maximum has grown so far
// that weights would exceed 2^8. Sources: Shah et al., "FlashAttention-3"; PTX ISA, "asynchronous
// warpgroup-level matrix instructions".
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Returns nothing if TMA does not support the layout of a factor.
std::optional<DeviceChoice> emit_flash_wgmma(const loop::Program& program, const loop::Nest& nest,
                                             const kernels::FlashPlan& plan, bool assumes,
                                             const GpuTarget& target);

}  // namespace stridec::codegen::cuda

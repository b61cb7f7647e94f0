// Attention on Hopper: a warp group that fetches tiles by the copy engine, and two or three that multiply (wgmma) and
// take the softmax in turns, so that one's products run under another's exponentials.
//
// Keys are walked from the last block to the first: masked blocks come first, the others run without their mask. Step j
// issues the scores of block j and the values of block j - 1, takes the softmax of j as soon as its scores are there,
// and rescales the sums only where a row's maximum has grown by more than 2^8. Sources: Shah et al., "FlashAttention-3";
// PTX ISA, "asynchronous warpgroup-level matrix instructions".
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Nothing where a factor is no tensor that the copy engine can walk through.
std::optional<DeviceChoice> emit_flash_wgmma(const loop::Program& program, const loop::Nest& nest,
                                             const kernels::FlashPlan& plan, bool assumes,
                                             const GpuTarget& target);

}  // namespace stridec::codegen::cuda

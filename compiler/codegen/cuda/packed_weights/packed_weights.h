// Products of few rows by weights of few bits (kernels/packed_weights.h), and such weights as floats.
//
// A warp has 16 columns and every n-th chunk of k: it loads 16 bytes of words a lane, takes the numbers out in registers as
// 16-bit floats, exactly, and multiplies them with the rows by mma.sync, where the weights are the 16 lines and up to eight
// rows the columns. Sums of a block of k, in f32, are multiplied by its scale; the warps of a block meet in shared memory.
// Factors of f32 are taken to pieces of 8 bits, three bf16 that add up to them, so that f32 stays f32.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Of a nest whose schedule is_packed_weights().
DeviceNest emit_packed_weights(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

// Emits GEMMs of few rows by packed weights (kernels/packed_weights.h), and the dequantisation of such
// weights to floats.
//
// A warp has 16 columns and every n-th chunk of k: each lane loads 16 bytes of words, extracts the numbers in
// registers as 16-bit floats, exactly, and multiplies them with the rows by mma.sync, where the weights are
// the 16 lines and up to eight rows are the columns. The sums of a block of k, in f32, are multiplied by its
// scale; the warps of a block combine their sums in shared memory. f32 factors are split into three bf16
// values of 8 bits each that add up to them, so that f32 keeps its precision.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Requires is_packed_weights(nest.schedule).
DeviceNest emit_packed_weights(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

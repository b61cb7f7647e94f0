// Emits attention kernels: contraction, softmax, contraction (kernels/flash.h), with scores kept in
// registers.
//
// A thread block computes a tile of rows and iterates over blocks of keys: scores by tensor cores, the nest's
// own statements on them (scale, mask, bias), a running maximum and sum per row, and values by tensor cores
// again. Keys that a causal mask hides from the whole tile are skipped. Rows of other batch dims that share
// keys (grouped queries) find them in L2. Sources: Dao, "FlashAttention-2"; PTX ISA, "mma.m16n8k16" and
// "ldmatrix" for the fragments.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Requires is_flash(nest.schedule). The first choice copies 16 bytes at a time; the last one supports all
// sizes.
DeviceNest emit_flash(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda

// Products by weights of few bits (kernels/packed_weights.h) on Hopper's warp groups, for any number of rows.
//
// One warp keeps a ring in shared memory filled by the copy engine: words, scales and zero points of 128 k, which do not
// wait for the launch before this one, and the rows' boxes. Warp groups take the numbers of 64 columns out into registers
// as 16-bit floats, times their scale, and multiply them with the rows by wgmma: weights are the 64 lines, rows the
// columns. Where rows are few, groups share the depth, in a block and in a cluster of blocks. Source of the instruction's
// registers: PTX ISA, "wgmma.mma_async".
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// For products of as many rows as the tile is for; nothing where no sizes allow it.
std::optional<DeviceChoice> emit_packed_weights_ring(const loop::Program& program, const loop::Nest& nest,
                                                     const GpuTarget& target,
                                                     const kernels::PackedTile& tile);

}  // namespace stridec::codegen::cuda

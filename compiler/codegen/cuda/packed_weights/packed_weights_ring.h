// Emits GEMMs by packed weights (kernels/packed_weights.h) with Hopper's warp groups, for any number of rows.
//
// One warp keeps a ring in shared memory filled by TMA: words, scales and zero points of 128 k, which do not
// wait for the previous launch, and boxes of the rows. Warp groups extract the numbers of 64 columns into
// registers as 16-bit floats, multiply them by their scale, and then by the rows with wgmma, where the
// weights are the 64 lines and the rows are the columns. If there are few rows, groups split the depth,
// within a block and within a cluster of blocks. Source of the register layout: PTX ISA, "wgmma.mma_async".
#pragma once

#include <optional>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// For GEMMs of at most as many rows as the tile supports; nothing if no sizes allow it.
std::optional<DeviceChoice> emit_packed_weights_ring(const loop::Program& program, const loop::Nest& nest,
                                                     const GpuTarget& target,
                                                     const kernels::PackedTile& tile);

}  // namespace stridec::codegen::cuda

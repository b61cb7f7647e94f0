// Emits GEMMs and convolutions of any layout, stride, padding and grouping, on the tiles of cuda_kernels.def.
//
// A thread block computes one tile of sums. Asynchronous copies fill a ring of stages in shared memory while
// tensor cores (mma.sync) or FMAs consume it; the sums go to shared memory and from there through the nest's
// own statements to global memory. One text serves every contraction: rows, columns and depth are flattened
// dims, and a factor's addresses follow from strides (implicit GEMM). Sources: CUTLASS's efficient_gemm.md
// for the hierarchy; PTX ISA, "mma.m16n8k16" and "ldmatrix", for the fragments.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Requires is_matrix(nest.schedule). The first choice moves 16 bytes at a time; the last one supports all
// sizes.
DeviceNest emit_matrix(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// Device functions for other tiled kernels: asynchronous copies, barriers and shared-memory addresses; matrix
// fragments and their product by mma.sync.
std::string memory_declarations();
std::string_view swizzle_declarations();  // the part of them that runs without a device
std::string mma_declarations(DType a, DType b, DType sum);

}  // namespace stridec::codegen::cuda

// Matrix products and convolutions of any layout, stride, padding and grouping on tiles of cuda_kernels.def.
//
// A block makes one tile of sums: a ring of stages in shared memory is filled by asynchronous copies while tensor cores
// (mma.sync) or multiply-adds consume it; the sums go to shared memory, and from there through the nest's own
// statements to global memory. One text serves every contraction: rows, columns and depth are flattened dims, and what
// a piece of a factor is, is found from strides (implicit GEMM). Sources: CUTLASS's efficient_gemm.md for the
// hierarchy; PTX ISA, "mma.m16n8k16" and "ldmatrix", for the fragments.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Of a nest whose schedule is_matrix(). The first choice moves 16 bytes at a time, the last takes any sizes.
DeviceNest emit_matrix(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

// Device functions for other kernels with tiles: asynchronous copies, barriers and addresses of shared memory; fragments
// of a matrix and their product, by mma.sync.
std::string memory_declarations();
std::string_view swizzle_declarations();  // of these what takes no device
std::string mma_declarations(DType a, DType b, DType sum);

}  // namespace stridec::codegen::cuda

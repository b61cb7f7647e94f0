// The main loop of Hopper: warp groups that multiply out of a ring in shared memory (wgmma) while another one fills it,
// by the copy engine where a factor is a matrix in memory, by gathers where it is not. Blocks are persistent.
//
// Sources: PTX ISA, "asynchronous warpgroup-level matrix instructions" (layouts, descriptors) and "mbarrier"; the
// warp-specialised persistent design of CUTLASS 3 (efficient_gemm.md).
#pragma once

#include "compiler/codegen/cuda/matrix_epilogue.h"
#include "compiler/codegen/cuda/matrix_side.h"

namespace stridec::codegen::cuda {

// `dependent`: the launch before this one may still run; nothing that it may write is touched before it has ended.
void print_wgmma(MatrixFrame& frame, MatrixSide& a, MatrixSide& b, MatrixEpilogue& epilogue, bool dependent);

// Barriers, and the copies by the engine that the sides ask for.
std::string copy_declarations(const MatrixSide& a, const MatrixSide& b);
std::string wgmma_declarations(const MatrixFrame& frame, const MatrixSide& a, const MatrixSide& b);
// Of kernels whose blocks split the depth in clusters.
std::string cluster_declarations(DType sum);
std::string exchange_declarations(DType sum);

// For other kernels of warp groups: mbarriers, named barriers, the order of products and descriptors of tiles with a
// 128-byte swizzle; copy_boxN(to, map, barrier, coordinates...) of a map with so many dims.
std::string barrier_declarations();
std::string box_declarations(size_t dims);
// The addresses of the ring `shared` and of its barriers `bars`, ready for use: a stage is full when so many have filled it, and
// empty when so many have read it.
void print_ring_barriers(KernelText& text, int stages, int fillers, int readers);

}  // namespace stridec::codegen::cuda

// Device functions of kernels of warp groups, as text: barriers, the copy engine, products and clusters.
//
// Source: PTX ISA, "asynchronous warpgroup-level matrix instructions", "mbarrier" and "cp.async.bulk.tensor".
#pragma once

#include <string>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"
#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

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

// Device functions of warp-group kernels, as text: barriers, TMA copies, wgmma products and clusters.
//
// Source: PTX ISA, "asynchronous warpgroup-level matrix instructions", "mbarrier" and "cp.async.bulk.tensor".
#pragma once

#include <string>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"
#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

// Barriers, and the TMA copies that the sides use.
std::string copy_declarations(const MatrixSide& a, const MatrixSide& b);
std::string wgmma_declarations(const MatrixFrame& frame, const MatrixSide& a, const MatrixSide& b);
// For kernels whose blocks split the depth in clusters.
std::string cluster_declarations(DType sum);
std::string exchange_declarations(DType sum);

// For other warp-group kernels. barrier_declarations(): mbarriers, named barriers, ordering of products, and
// descriptors of tiles with a 128-byte swizzle. box_declarations(): copy_boxN(to, map, barrier,
// coordinates...) for a map with N dims.
std::string barrier_declarations();
std::string box_declarations(size_t dims);
// Declares the address of the ring `shared` and of its barriers `bars`, and initialises them: a stage is full
// after `fillers` arrivals and empty after `readers` arrivals.
void print_ring_barriers(KernelText& text, int stages, int fillers, int readers);

}  // namespace stridec::codegen::cuda

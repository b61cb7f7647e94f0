// The main loop for Hopper: warp groups multiply from a ring in shared memory (wgmma) while another one fills
// it, by TMA if a factor is a matrix in memory, otherwise by gathers. Blocks are persistent.
//
// Sources: PTX ISA, "asynchronous warpgroup-level matrix instructions" (layouts, descriptors) and "mbarrier";
// the warp-specialised persistent design of CUTLASS 3 (efficient_gemm.md).
#pragma once

#include "compiler/codegen/cuda/matrix/matrix_epilogue.h"
#include "compiler/codegen/cuda/matrix/matrix_rows.h"
#include "compiler/codegen/cuda/matrix/matrix_side.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma_text.h"

namespace stridec::codegen::cuda {

// `rows`: the prologue that computes b's tile, or null. `dependent`: the previous launch may still run, and
// nothing that it may write is accessed before it has ended.
void print_wgmma(MatrixFrame& frame, MatrixSide& a, MatrixSide& b, MatrixEpilogue& epilogue, MatrixRows* rows,
                 bool dependent);

}  // namespace stridec::codegen::cuda

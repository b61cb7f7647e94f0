// The main loop of Hopper: warp groups that multiply out of a ring in shared memory (wgmma) while another one fills it,
// by the copy engine where a factor is a matrix in memory, by gathers where it is not. Blocks are persistent.
//
// Sources: PTX ISA, "asynchronous warpgroup-level matrix instructions" (layouts, descriptors) and "mbarrier"; the
// warp-specialised persistent design of CUTLASS 3 (efficient_gemm.md).
#pragma once

#include "compiler/codegen/cuda/matrix/matrix_epilogue.h"
#include "compiler/codegen/cuda/matrix/matrix_rows.h"
#include "compiler/codegen/cuda/matrix/matrix_side.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma_text.h"

namespace stridec::codegen::cuda {

// `rows`: what makes b's tile, or null. `dependent`: the launch before this one may still run; nothing that it may write is
// touched before it has ended.
void print_wgmma(MatrixFrame& frame, MatrixSide& a, MatrixSide& b, MatrixEpilogue& epilogue, MatrixRows* rows,
                 bool dependent);

}  // namespace stridec::codegen::cuda

// Chooses the layout of a GEMM operand in scratch so that it is a row-major matrix (a TMA box).
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   o[b, h, s, j] read as the matrix of rows (b, s) and depth (h, j)   ->   memory order b, s, h, j
//
//   t[b, y, x, c] read as the matrix of rows (b*64 + y//7*8 + x//7, mod(y, 7)*7 + mod(x, 7)) and depth c
//   ->   stored as that matrix: its writer computes the place
//
// Copy engines (TMA) move boxes of matrices whose rows have one stride and whose depth is contiguous. Applies
// to arena buffers that only one GEMM reads, that are row-major so far and whose last dim, which stays last,
// is the last dim of the depth. The first form changes strides and no indices; the second, windows, changes
// the buffer's shape. Windows of buffers with other readers, or of the caller's inputs, are copied if the
// GEMM reads each element often.
void lay_out_operands(loop::Program& program);

}  // namespace stridec::schedule

// Scratch that a product reads lies in memory as the matrix that the product takes it for.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   o[b, h, s, j] read as the matrix of rows (b, s) and depth (h, j)   ->   in memory in the order b, s, h, j
//
//   t[b, y, x, c] read as the matrix of rows (b*64 + y//7*8 + x//7, mod(y, 7)*7 + mod(x, 7)) and depth c
//   ->   in memory as that matrix: who stores it finds the place
//
// Copy engines move boxes of matrices: rows that are one step apart, and depth in one piece. Applies to arena buffers that
// one product reads and nobody else, row-major so far and contiguous along the depth's last dim, which stays so. Of the first
// kind strides change, and indices do not; of the second kind, windows, the buffer's shape does. Windows of what others read
// as well, or the caller gives, are copied where the product reads each element often.
void lay_out_operands(loop::Program& program);

}  // namespace stridec::schedule

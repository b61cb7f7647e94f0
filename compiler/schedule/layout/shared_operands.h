// Chooses the layout of scratch tensors that a GEMM and other steps read, as in a forward and a backward
// pass.
#pragma once

#include <set>

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   forward            o[b, s, n]   = sum over h, j of  t[b, h, s, j] * w[h, j, n]
//   weight gradient    dw[h, j, n]  = sum over b, s of  t[b, h, s, j] * do[b, s, n]
//                      ->   memory order b, s, h, j: a row-major matrix for both
//
//   windows            y[w, p, n]  = sum over c of t[w//8, 3*mod(w//4, 2) + p//2, 2*mod(w, 4) + mod(p, 2), c]
//                                                  * v[c, n]
//   weight gradient    dv[c, n]    = sum over b, i, j, k, l of t[b, 3*i + k, 2*j + l, c] * ...
//                      ->   t becomes t[b, i, j, k, l, c], with a dim for each digit
//
// The dims of an operand, or the digits of their indices (a digit is a quotient or a remainder of an index
// variable), belong to a group: the GEMM's batch, its depth, or the operand's own points. TMA copies tiles
// of a matrix if the dims of its rows, and those of its columns, each step through memory with one stride.
// The layout of an arena buffer changes if that gives more of the GEMMs that read it such a matrix and
// takes it from none: by strides where they suffice, otherwise, if several GEMMs read it, by a dim for each
// digit. Dims of the depth follow the order in which the other operand has them. The innermost dim stays
// innermost. `fixed`: buffers whose layout other steps rely on.
void lay_out_shared_operands(loop::Program& program, const std::set<loop::BufferId>& fixed);

}  // namespace stridec::schedule

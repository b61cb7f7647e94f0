// Replaces non-zero padding of integer convolutions by zero padding plus a small correction table.
//
//   y[o, i, j] = sum over c, r<3, s<3 of w[o, c, r, s] * (x[c, i + r - 1, j + s - 1], or z outside of x)
//
//   t[a, b, d, e, o] = z * sum over c, r, s of w[o, c, r, s],
//                      where r < a || r >= 3 - b || s < d || s >= 3 - e
//   y[o, i, j] = sum over c, r, s of w[o, c, r, s] * (x[c, i + r - 1, j + s - 1], or 0 outside of x)
//              + t[max(0, 1 - i), max(0, i + 2 - n), max(0, 1 - j), max(0, j + 2 - m), o],
//                where one of these is not 0
//
// Asynchronous copies and copy engines fill out-of-range elements only with zeros, but the padding of
// quantised values is their zero point. Its contribution to a sum depends on the weights and on how many taps
// of a window are out of range on each side, so a small table holds it. Interior points do not look it up.
// Integers wrap, so results are bit-identical.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void remove_nonzero_padding(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule

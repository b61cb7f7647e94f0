// Padding that is not 0, taken out of sums of products of integers.
//
//   y[o, i, j] = sum over c, r<3, s<3 of (x[c, i + r - 1, j + s - 1], or z where that is not in x) * w[o, c, r, s]
//
//   t[a, b, d, e, o] = z * sum over c, r, s of w[o, c, r, s], where r < a || r >= 3 - b || s < d || s >= 3 - e
//   y[o, i, j] = sum over c, r, s of (x[c, i + r - 1, j + s - 1], or 0 where that is not in x) * w[o, c, r, s]
//              + t[max(0, 1 - i), max(0, i + 2 - n), max(0, 1 - j), max(0, j + 2 - m), o], where one of these is not 0
//
// Asynchronous copies and copy engines fill what lies beyond an image with zeros and nothing else. Zero points of
// quantised numbers are padding of any value; what it adds to a sum depends on the weights and on how many taps of a window
// are beyond each side, which makes a small table. Inside of an image nothing is looked up. Integers wrap, so that
// results are the same to the last bit.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void remove_nonzero_padding(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule

// Copies inputs so that each row of a convolution's window is contiguous in memory, for tensor cores.
//
//   y[n, o, i, j] = sum over c<3, r<7, s<7 of x[n, c, 2*i + r - 3, 2*j + s - 3] * w[o, c, r, s], where in x
//
//   p[n, h, 4*l + c] = x[n, c, h - 3, l - 3], where that is in x and c < 3; else 0
//   v[o, r, 4*s + c] = w[o, c, r, s], where c < 3 and s < 7; else 0
//   y[n, o, i, j]    = sum over r<7, q<32 of p[n, 2*i + r, 8*j + q] * v[o, r, q]
//
// If a pixel's channels are contiguous in whole pieces of 16 bytes, pieces are loaded at a time. If there are
// few channels, only several neighbouring pixels amount to 16 bytes: channels are padded until the step to
// the next output is a multiple of 16 bytes, and so is a window's row. Larger numbers of channels, of an
// image that is channels-first or has no whole pieces, are padded likewise if each element is read often
// enough that the copy costs less than it saves. Padded taps multiply zeros.
//
// The gradient of such a weight has the taps in its result. It is computed for the padded row, and what reads
// it skips the padding:
//
//   g[o, c, r, s] = sum over n, i, j of x[n, c, 2*i + r - 3, 2*j + s - 3] * d[n, o, i, j]
//   g'[o, r, q]   = sum over n, i, j of p[n, 2*i + r, 8*j + q] * d[n, o, i, j]
//   g[o, c, r, s] is g'[o, r, 4*s + c]
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void make_windows_contiguous(loop::Program& program);

}  // namespace stridec::schedule

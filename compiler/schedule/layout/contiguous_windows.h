// Copies in which a row of a convolution's window lies in one run of memory, for tensor cores.
//
//   y[n, o, i, j] = sum over c<3, r<7, s<7 of x[n, c, 2*i + r - 3, 2*j + s - 3] * w[o, c, r, s], where that is in x
//
//   p[n, h, 4*l + c] = x[n, c, h - 3, l - 3], where that is in x and c < 3; else 0
//   v[o, r, 4*s + c] = w[o, c, r, s], where c < 3 and s < 7; else 0
//   y[n, o, i, j]    = sum over r<7, q<32 of p[n, 2*i + r, 8*j + q] * v[o, r, q]
//
// Where a pixel's channels lie side by side in whole pieces of 16 bytes, pieces are loaded at a time. Where there are few
// channels, only neighbouring pixels together have as many bytes: channels are padded until a step to the next output is a
// multiple of 16 bytes, and a window's row until it is one too. More channels, of an image that has them first or not in
// whole pieces, are padded likewise where each element is read so often that the copy costs less than it saves. Padded
// taps multiply zeros.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void make_windows_contiguous(loop::Program& program);

}  // namespace stridec::schedule

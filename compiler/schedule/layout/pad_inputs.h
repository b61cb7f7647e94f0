// Padded copies of what convolutions of few channels read, or copies spread out as they read it.
//
//   y[n, o, i, j] = sum over c<3, r<7, s<7 of x[n, c, 2*i + r - 3, 2*j + s - 3] * w[o, c, r, s], where that is in x
//
//   p[n, c, i, j] = x[n, c, i - 3, j - 3], where that is in x; else 0
//   y[n, o, i, j] = sum over c<3, r<7, s<7 of p[n, c, 2*i + r, 2*j + s] * w[o, c, r, s]
//
// Padding by what is in the image (reflected, its edges, its other end) and images read in larger ones are likewise:
//
//   y[o, i] = sum over c<3, r<9 of x[c, f(i + r - 4)] * w[o, c, r]
//
//   p[c, i] = x[c, f(i - 4)]
//   y[o, i] = sum over c<3, r<9 of p[c, i + r] * w[o, c, r]
//
// Where there are many channels, a tap that is in the padding is a row of zeros. Where there are few, the window itself is
// what lies next to each other, and only without a mask and such a function can it be read where it is instead of being
// gathered for each result.
#pragma once

#include <optional>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// The copy, to a buffer that is added to the program, and the nest that reads it; nothing, with nothing added, where `nest`
// is no such contraction.
std::optional<std::vector<loop::Nest>> padded(loop::Program& program, const loop::Nest& nest);

void pad_inputs(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

// Copies the inputs of convolutions with few channels: padded, or expanded to the positions that the windows
// read.
//
//   y[n, o, i, j] = sum over c<3, r<7, s<7 of x[n, c, 2*i + r - 3, 2*j + s - 3] * w[o, c, r, s], where in x
//
//   p[n, c, i, j] = x[n, c, i - 3, j - 3], where in x; else 0
//   y[n, o, i, j] = sum over c<3, r<7, s<7 of p[n, c, 2*i + r, 2*j + s] * w[o, c, r, s]
//
// Reflecting, edge-repeating and circular padding and upsampled images are handled likewise:
//
//   y[o, i] = sum over c<3, r<9 of x[c, f(i + r - 4)] * w[o, c, r]
//
//   p[c, i] = x[c, f(i - 4)]
//   y[o, i] = sum over c<3, r<9 of p[c, i + r] * w[o, c, r]
//
// With many channels, a tap in the padding is a row of zeros. With few channels the window itself is the
// contiguous run, and it can be read in place only without a mask and without such an index function;
// otherwise it would be gathered for each result.
//
// Convolutions to few channels whose input has contiguous rows are plain loops over vectors of a row. Without
// the masks of padding each vector is a single load. Where results are several elements apart, the copy has
// rows by phases, so that the elements of neighbouring results are side by side:
//
//   y[o, i, j] = sum over c<64, r<3, s<3 of x[c, 2*i + r - 1, 2*j + s - 1] * w[o, c, r, s], where in x
//
//   p[c, i, q, j] = x[c, i - 1, 2*j + q - 1], where in x; else 0; q < 2
//   y[o, i, j] = sum over c<64, r<3, s<3 of p[c, 2*i + r, s mod 2, j + floor(s / 2)] * w[o, c, r, s]
#pragma once

#include <optional>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Returns the copying nest, whose buffer is added to the program, and the nest that reads the copy. Returns
// nothing, and adds nothing, if `nest` is not such a contraction.
enum class Few { kChannels, kResults };  // of inputs; of results, and inputs with contiguous rows
std::optional<std::vector<loop::Nest>> padded(loop::Program& program, const loop::Nest& nest, Few few);

void pad_inputs(loop::Program& program, Few few, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

// Polyphase decomposition: splits strided windows by phase, so that a transposed convolution becomes ordinary
// ones.
//
//   for s<E: y[s] = sum over r<K of x[(s - r)//2] * w[r], where mod(s - r, 2) == 0
//
//   for q<(E + 1)//2: y[2*q]     = sum over r<(K + 1)//2 of x[q - r] * w[2*r]
//   for q<E//2:       y[2*q + 1] = sum over r<K//2       of x[q - r] * w[2*r + 1]
//
// A condition mod(a*s + b*r + c, S) == 0 on a factor of the summed product ties the reduced dim r to the
// phase of the parallel dim s. After the split each nest sums only over the r that meet the condition, which
// is S times less work for each such dim. The results interleave in one buffer, and the dense nests match the
// contraction templates.
//
// If there are many phases with equally many taps, the phase becomes a parallel dim of one nest instead.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Returns the nests, one per phase, that together compute what `nest` does. Returns none and sets `reason` if
// the nest has no such window.
std::vector<loop::Nest> polyphase_nests(const loop::Program& program, const loop::Nest& nest,
                                        std::string* reason);

// Replaces every launch of a nest with phases by launches of its per-phase nests.
void decompose_polyphase(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

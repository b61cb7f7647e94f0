// Strided windows taken apart by phase: a transposed convolution becomes ordinary ones.
//
//   for s<E: y[s] = sum over r<K of x[(s - r)//2] * w[r], where mod(s - r, 2) == 0
//
//   for q<(E + 1)//2: y[2*q]     = sum over r<(K + 1)//2 of x[q - r] * w[2*r]
//   for q<E//2:       y[2*q + 1] = sum over r<K//2       of x[q - r] * w[2*r + 1]
//
// A condition mod(a*s + b*r + c, S) == 0 on a factor of the summed product ties the reduced dim r to the phase of the
// parallel dim s. Split by phase, every nest sums over the r that meet the condition and no others, which is S times
// less work for every such dim; the results interleave in the one buffer. The dense nests that come out are what the
// templates for contractions know.
//
// Where there would be many phases and all have equally many taps, the phase becomes a parallel dim of one nest.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// The nests that together do what `nest` does, one per phase; none, with the reason, where it has no such window.
std::vector<loop::Nest> polyphase_nests(const loop::Program& program, const loop::Nest& nest,
                                        std::string* reason);

// Every launch of a nest that has phases becomes launches of them.
void decompose_polyphase(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

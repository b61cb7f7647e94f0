// Loops over flattened tensors become loops over their dims.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// reduce (%r<256*h8*w8)  load x[%r//(64*h8*w8), mod(%r//(8*w8), 8*h8), mod(%r, 8*w8)]
//   ->  reduce (%r.0<4, %r.1<8*h8, %r.2<8*w8)  load x[%r.0, %r.1, %r.2]
//
// A dim is split where its index expressions divide by numbers that divide each other and its extent, known
// or symbolic: then the divisions go, and strides show. Dims of reductions and inner loops; parallel dims
// where a divisor is symbolic (constant ones are split by the schedule, which can also merge them again).
//
// reduce (%c<512, %h<7, %w<7)  load x[%b, %c, %h, %w], load weight[%o, 49*%c + 7*%h + %w]
//   ->  load x[%b, %c, %h, %w], load weight[%o, %c, %h, %w]
//
// Dims of weights likewise, where all that a run reads of them is read so: then they can be laid out in the order in which
// another tensor's dims lie.
void delinearize(loop::Program& program);

}  // namespace stridec::schedule

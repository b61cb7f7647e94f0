// Delinearises: loops over flattened tensors become one loop per dim.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// reduce (%r<256*h8*w8)  load x[%r//(64*h8*w8), mod(%r//(8*w8), 8*h8), mod(%r, 8*w8)]
//   ->  reduce (%r.0<4, %r.1<8*h8, %r.2<8*w8)  load x[%r.0, %r.1, %r.2]
//
// A dim is split where its index expressions divide by numbers that divide one another and the dim's extent,
// which may be symbolic. The divisions disappear and the strides become visible. Dims of reductions and inner
// loops are split, and parallel dims of nests that reduce columns; other parallel dims only where a divisor
// is symbolic, since the schedule splits by constant divisors and can also merge such dims again.
//
// reduce (%c<512, %h<7, %w<7)  load x[%b, %c, %h, %w], load weight[%o, 49*%c + 7*%h + %w]
//   ->  load x[%b, %c, %h, %w], load weight[%o, %c, %h, %w]
//
// Dims of weights are split likewise where every load of the run indexes the weight this way. The weight can
// then be laid out in the dim order of another tensor.
void delinearize(loop::Program& program);

}  // namespace stridec::schedule

// Joins reductions that read one large tensor: one pass over it computes all of them.
//
//   for c: s[c] = f(reduce sum n, h of g[n,c,h])                for c:
//   for c: p[c] = h(reduce sum n, h of g[n,c,h] * x[n,c,h])  ->   a, b = reduce sum n, h of (g, g * x)
//                                                                 s[c] = f(a); p[c] = h(b)
//
// Examples are the gradients of a norm's scale and bias, and those of two branches of a network that meet in
// one sum. Such nests do not pass anything to each other, so that fusion does not merge them.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Joins nests of one reduction each, over equal dims, if they read a large tensor at the same index.
// `decisions`: null if they are not recorded.
void join_reductions(loop::Program& program, std::vector<Decision>* decisions);

}  // namespace stridec::schedule

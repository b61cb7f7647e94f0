// Rematerialization: computes an elementwise result again where it is needed, from tensors that are in memory
// anyway, instead of storing it.
//
//   for i:                            for i:
//     m[i] = max_j x[i, j]              m[i] = max_j x[i, j]
//     for j: e[i, j] = exp(x - m)       s[i] = sum_j exp(x - m)
//     s[i] = sum_j e[i, j]       ->
//   for i, j:                         for i, j:
//     y[i, j] = e[i, j] * g[i]          y[i, j] = exp(x[i, j] - m[i]) * g[i]
//
// Fusion has merged the nest that computes e with others by then, so that its inliner, which moves whole
// nests, does not apply. The backward pass of a softmax over many classes is such a consumer. So is that of a
// batch norm, whose sums of g * (x - m) read g and x, where a contraction's epilogue would store the
// products, and that of an activation, which reads x.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// For large buffers only, whose store goes to memory. `decisions`: null if they are not recorded.
void rematerialize(loop::Program& program, std::vector<Decision>* decisions);

}  // namespace stridec::schedule

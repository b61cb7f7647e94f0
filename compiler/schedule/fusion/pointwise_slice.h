// The part of a nest that computes one of its results, as a nest of its own:
//
//   for i:                            for i, j:
//     m = max_j x[i, j]                 e[i, j] = exp(x[i, j] - m[i])
//     m[i] = m                   ->
//     for j: e[i, j] = exp(x - m)
//
// For passes that compute the result in other places as well.
#pragma once

#include <optional>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// The pointwise nest that computes the elements of the buffer from memory: from what `nest` reads, and from
// what else it stores. Nothing if these values are not elementwise, or if `nest` stores to the buffer in
// several places, under a mask, or in rank 0.
std::optional<loop::Nest> pointwise_slice(const loop::Program& program, const loop::Nest& nest,
                                          loop::BufferId result);

}  // namespace stridec::schedule

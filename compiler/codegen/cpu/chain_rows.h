// Rewrites the row statements of chains so that they need fewer passes over a row.
#pragma once

#include <optional>

#include "compiler/kernels/chain.h"

namespace stridec::codegen::cpu {

// Delayed normalisation: if a row is divided by its sum and the next link multiplies it, the link's results
// are divided instead. The division moves from the row statements of `part` into the epilogue of the
// following link, which uses the row's `sum` of `count` exponentials.
struct DividedResults {
  size_t part;
  loop::ValueId sum;
  sym::Expr count;
  // NaN quotients count as 0; either all quotients of a row are NaN or none. The epilogue gives 0 if its sum
  // is NaN.
  bool guarded = false;
};
std::optional<DividedResults> divide_results(const loop::Program& program, kernels::Chain& chain);

// Merges a loop that stores a row with the following loop that sums that row.
void sum_where_stored(loop::Nest& rows);

}  // namespace stridec::codegen::cpu

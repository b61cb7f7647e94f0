// Row statements of chains in the order that takes the fewest passes over a row.
#pragma once

#include <optional>

#include "compiler/kernels/chain.h"

namespace stridec::codegen::cpu {

// A row is divided by its sum, and the next link multiplies it: its results, which are as many as its columns, are divided
// instead. The division moves from the row statements of `part` into the epilogue of the link behind them, which uses the
// row's `sum`, of `count` terms that are exponentials.
struct DividedResults {
  size_t part;
  loop::ValueId sum;
  sym::Expr count;
  // Quotients that are no numbers count as 0, which are all of a row or none: results are 0 where the sum that the epilogue
  // is given is NaN.
  bool guarded = false;
};
std::optional<DividedResults> divide_results(const loop::Program& program, kernels::Chain& chain);

// A loop that stores a row and the sum of that row behind it become one.
void sum_where_stored(loop::Nest& rows);

}  // namespace stridec::codegen::cpu

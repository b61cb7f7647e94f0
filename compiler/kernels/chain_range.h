// Finds the columns of a chain's rows that a mask of positions hides: their values in scratch are 0, so that
// blocks of rows skip those which it hides from all of their rows. NaN and infinity in hidden columns do not
// reach the results.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/chain.h"

namespace stridec::kernels {

struct ChainRange {
  // By part of the chain: whether it is a link that sums over columns. Other links fill columns, and all
  // `for` loops of row statements are over columns.
  std::vector<bool> sums;
  sym::Expr extent;  // of the columns
  // Row r has the columns from r + first on, or those before r + end.
  std::optional<sym::Expr> first, end;
};

// Nothing if no columns are hidden, or if a chain's statements use hidden ones.
std::optional<ChainRange> chain_range(const loop::Program& program, const Chain& chain);

}  // namespace stridec::kernels

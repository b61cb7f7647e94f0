// Finds the columns of a chain's rows that a mask of positions hides. Their values in scratch are 0, so that
// a block of rows can skip the columns hidden from all of its rows. NaN and infinity in hidden columns do not
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
  sym::Expr extent;  // number of columns
  // Row r sees the columns from r + first on, or those before r + end.
  std::optional<sym::Expr> first, end;
};

// Nothing if no columns are hidden, or if a chain's statements use hidden ones.
std::optional<ChainRange> chain_range(const loop::Program& program, const Chain& chain);

}  // namespace stridec::kernels

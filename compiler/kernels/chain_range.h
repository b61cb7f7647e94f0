// Finds the columns of a chain's rows that a mask of positions hides: their values in scratch are 0, so that
// blocks of rows skip those which it hides from all of their rows. NaN and infinity in hidden columns do not
// reach the results.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/chain.h"

namespace stridec::kernels {

struct ChainRange {
  enum class Role {
    kOther,
    kColumns,  // a link that fills columns, or row statements with loops over them
    kSums      // a link that sums over columns
  };
  std::vector<Role> roles;  // of the chain's parts
  sym::Expr extent;         // of the columns
  // Row r has the columns from r + first on, and those before r + end.
  std::optional<sym::Expr> first, end;
  // The loops over columns in row statements.
  bool is_over_columns(const loop::Program& program, const loop::For& loop) const;
};

// Nothing if no columns are hidden, or if a chain's statements use hidden ones.
std::optional<ChainRange> chain_range(const loop::Program& program, const Chain& chain);

}  // namespace stridec::kernels

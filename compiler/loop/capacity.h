// Loops without a bound on their iterations (While in program.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

constexpr int64_t kFirstCapacity = 16;

// The loop's trip count if that is a capacity: a symbol that no input and no other step binds.
std::optional<sym::Expr> capacity_of(const Program& program, const While& loop);

// Of the loops among these steps. They have their first value from the start of the list on, since steps
// before a loop store what it carries.
std::vector<sym::Expr> capacities_of(const Program& program, const Steps& steps);

// The buffers whose memory follows the capacity.
std::vector<BufferId> growing_buffers(const Program& program, sym::Expr capacity);

}  // namespace stridec::loop

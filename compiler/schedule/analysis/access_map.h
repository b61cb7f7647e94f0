// Describes which range of a buffer's dim a nest accesses, as an affine function of one of the nest's dims.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// The range from scale * var + low to scale * var + high, where var is a dim of the nest.
struct Along {
  sym::Expr var;
  int64_t scale = 1, low = 0, high = 0;
  bool plain() const { return scale == 1 && low == 0 && high == 0; }
};

// Returns one entry per dim of the buffer, covering all stores (or all loads) of the nest to it. An entry is
// empty if that dim is not indexed by exactly one dim of the nest.
std::vector<std::optional<Along>> accesses_along(const loop::Program& program, const loop::Nest& nest,
                                                 loop::BufferId buffer, bool stores);

// Sorts dims by their steps in memory, the largest first; leaves them if the access does not step evenly
// along one of them. Dims whose steps cannot be compared keep their order.
void sort_as_in_memory(std::vector<loop::Dim>& dims, const loop::Program& program, const loop::Access& access,
                       const sym::Facts& facts);

// The extent of the nest's dim `var`, or 0 if the nest has no such dim.
sym::Expr extent_of(const loop::Nest& nest, sym::Expr var);

}  // namespace stridec::schedule

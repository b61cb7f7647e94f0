// Where the accesses of a nest to a buffer go along each dim of it, in terms of the nest's own dims.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// From scale * var + low to scale * var + high, var a dim of the nest.
struct Along {
  sym::Expr var;
  int64_t scale = 1, low = 0, high = 0;
  bool plain() const { return scale == 1 && low == 0 && high == 0; }
};

// By the buffer's dims, of all that the nest stores there or all that it loads; nothing where a dim of the buffer does not go
// along with just one of the nest's.
std::vector<std::optional<Along>> accesses_along(const loop::Program& program, const loop::Nest& nest,
                                                 loop::BufferId buffer, bool stores);

// Of the nest's dim `var`; 0: it has none.
sym::Expr extent_of(const loop::Nest& nest, sym::Expr var);

}  // namespace stridec::schedule

// Integer division that rounds toward negative infinity.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// floor(x / y), 0 for y = 0; exact wherever it fits the dtype. x - mod(x, y) would not, near the least x.
Term floor_quotient(Term x, Term y);

}  // namespace stridec::ops

// Products of groups of rows with one matrix each.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// rows [n, in], sorted by group; weights [groups, in, out]; ends [groups]: where the rows of each group end.
// Row i of the result [n, out] is row i times its group's matrix; rows after the last end are zero. A group
// computes its own rows only; their number is a symbol bound at run time.
Term grouped_product(Term rows, Term weights, Term ends);

}  // namespace stridec::ops

// Gathers and scatters whose negative indices are errors of the run, as PyTorch's index_add() and scatter()
// have them; those of nodes.h and term.h count negative indices from the end.
#pragma once

#include <string>

#include "compiler/ops/term.h"

namespace stridec::ops {

enum class Negative { kFromEnd, kError };

Term gather(Term data, Term indices, int64_t dim, int64_t batch_dims, Negative negative);
Term gather_elements(Term data, Term indices, int64_t dim, Negative negative);
Term scatter_elements(Term data, Term indices, Term updates, int64_t dim, const std::string& reduction,
                      Negative negative);

}  // namespace stridec::ops

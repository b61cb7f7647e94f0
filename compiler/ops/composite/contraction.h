// Matrix multiplication and Einstein summation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// NumPy's matmul: batch dims broadcast, vectors are promoted to matrices. `to`: dtype of the result (none:
// that of the operands).
Term matmul(Term a, Term b, std::optional<DType> to = std::nullopt);
// alpha * a b, as in matmul.
Term scaled_matmul(Term a, Term b, double alpha);
// x w + bias, as in matmul.
Term linear(Term x, Term w, std::optional<Term> bias);
// alpha * a b + beta * c for matrices a and b. c broadcasts to the result; it is ignored if beta is 0.
Term gemm(Term a, Term b, std::optional<Term> c, double alpha, double beta);
// Einstein summation in NumPy's notation: "bij,bjk->bik", with "..." and repeated letters. "->" is optional.
Term einsum(std::string equation, std::vector<Term> operands);

}  // namespace stridec::ops

#include "compiler/ops/floor_quotient.h"

namespace stridec::ops {

Term floor_quotient(Term x, Term y) {
  const Term toward_zero = x / y;
  if (!is_signed(x.dtype())) return toward_zero;
  const Term rest = x - toward_zero * y;  // has the sign of x, unless it is 0
  const Term below = less(rest * apply(graph::OpKind::kSign, y), 0);
  return toward_zero - cast(below, toward_zero.dtype());
}

}  // namespace stridec::ops

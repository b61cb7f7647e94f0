#include "compiler/ops/composite/chebyshev.h"

namespace stridec::ops {

Term power_sum(std::span<const double> c, Term x) {
  Term out = number_like(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) out = out * x + c[i];
  return out;
}

Term chebyshev_sum(std::span<const double> c, Term x) {
  const Term twice = x * 2.0;
  Term later = number_like(x, 0), sum = number_like(x, c.back());
  for (size_t i = c.size() - 1; i-- > 1;) {
    const Term next = twice * sum - later + c[i];
    later = sum;
    sum = next;
  }
  return x * sum - later + c[0];
}

}  // namespace stridec::ops

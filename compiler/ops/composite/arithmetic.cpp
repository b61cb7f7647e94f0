#include "compiler/ops/composite/arithmetic.h"

namespace stridec::ops {

using graph::OpKind;

Term add_parameter(Term x, Term parameter, const std::string& what) {
  return x + unidirectional(parameter, x.shape(), what);
}

Term add_bias_and_skip(Term x, Term bias, const std::string& bias_name, Term skip,
                       const std::string& skip_name) {
  return x + unidirectional(bias, x.shape(), bias_name) + unidirectional(skip, x.shape(), skip_name);
}

Term gated_add(Term x, Term gate, Term y) { return x + gate * y; }

Term mean_of(const std::vector<Term>& terms) {
  Term sum = terms.at(0);
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i];
  return terms.size() == 1 ? sum : sum / static_cast<double>(terms.size());
}

Term affine(Term x, double alpha, double beta) { return x * alpha + beta; }

Term power(Term x, Term y, std::optional<double> exponent) {
  // Squares and cubes appear in exported normalisations and in the approximation of GELU.
  if (exponent == 2) return square(x);
  if (exponent == 3 && !is_storage_float(x.dtype())) return square(x) * x;
  if (x.dtype() == y.dtype()) return pow(x, y);
  if (is_float(x.dtype()) || is_integer(y.dtype())) return pow(x, cast(y, x.dtype()));
  return cast(pow(cast(x, y.dtype()), y), x.dtype());
}

Term is_infinite(Term x, bool negative, bool positive) {
  const Term inf = apply(OpKind::kIsInf, x);
  if (negative && positive) return inf;
  if (!negative && !positive) return logical_and(inf, logical_not(inf));
  return logical_and(inf, negative ? less(x, 0) : greater(x, 0));
}

Term any_element(Term x) { return reduce(OpKind::kReduceOr, reshape(x, {count(x.shape())}), {0}); }

}  // namespace stridec::ops

// Sums, powers and tests of a few primitives each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// x + parameter, which broadcasts to x and not the other way round. `what` names it in error messages.
Term add_parameter(Term x, Term parameter, const std::string& what);
// x + bias + skip, of which both broadcast to x. `bias_name` and `skip_name` name them in error messages.
Term add_bias_and_skip(Term x, Term bias, const std::string& bias_name, Term skip,
                       const std::string& skip_name);
Term gated_add(Term x, Term gate, Term y);  // x + gate * y
Term mean_of(const std::vector<Term>& terms);
Term affine(Term x, double alpha, double beta);  // alpha * x + beta

// x^y in x's dtype. A float exponent of an integer base is computed in floats. `exponent`: the value of y, if
// it is known when the graph is built and x is a float of at least y's rank.
Term power(Term x, Term y, std::optional<double> exponent);

// Whether x is one of the infinities asked for.
Term is_infinite(Term x, bool negative, bool positive);
// Whether any element of a bool tensor is true, rank 0.
Term any_element(Term x);

}  // namespace stridec::ops

// Gradients of special functions, at both sides of the limits of their approximations and at whole numbers.
#include <doctest/doctest.h>

#include "compiler/ops/composite/bessel.h"
#include "compiler/ops/composite/incomplete_gamma.h"
#include "compiler/ops/composite/integers.h"
#include "compiler/ops/composite/orthogonal.h"
#include "compiler/ops/composite/special.h"
#include "gradient_harness.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using ops::Term;
using Ids = std::vector<ValueId>;

namespace {

HostTensor f64(const std::vector<double>& values) {
  return tensor(DType::kF64, {static_cast<int64_t>(values.size())}, values);
}

}  // namespace

TEST_CASE("special functions: gradients") {
  const auto with = [](const char* name, Term (*f)(Term), const std::vector<double>& x) {
    check_gradient(name, {f64(x)}, [=](Builder& b, const Ids& in) { return f(Term(b, in[0])).id(); },
                   {.symbolic = false, .strided = false});
  };
  with("j0", [](Term x) { return ops::bessel_j(x, 0); }, {-3, 0.5, 12});
  with("y1", [](Term x) { return ops::bessel_y(x, 1); }, {0.5, 3, 12});
  with("k1", [](Term x) { return ops::scaled_bessel_k(x, 1); }, {0.5, 3});
  with("ai", [](Term x) { return ops::airy_ai(x); }, {-7, -1, 3});
  with("lgamma", ops::lgamma, {-1.5, 0.3, 1, 3});
  with("digamma", ops::digamma, {-1.5, 0.3, 1, 3});
  with("trigamma", [](Term x) { return ops::polygamma(1, x); }, {-1.5, 0.3, 1, 3});
  with("erfc", ops::erfc, {-30, -1, 0.5, 3});
  with("frexp", [](Term x) { return ops::mantissa_and_exponent(x).mantissa; }, {-3.1, 0.3, 5});
  check_gradient("igamma", {f64({0.7, 3, 3, 30, 30}), f64({0.4, 1, 7, 28, 33})},
                 [](Builder& b, const Ids& in) {
                   return ops::incomplete_gamma(Term(b, in[0]), Term(b, in[1])).lower.id();
                 },
                 {.symbolic = false, .second = false, .strided = false});
  check_gradient("chebyshev", {f64({-1.5, -0.3, 0.4, 2})}, [](Builder& b, const Ids& in) {
    const Term x(b, in[0]);
    return (ops::chebyshev_polynomial(ops::Chebyshev::kThird, x, ops::number_like(x, 5)) * 0.1 +
            ops::chebyshev_polynomial(ops::Chebyshev::kSecond, x * 0.45, ops::number_like(x, 11)))
        .id();
  });
  check_gradient("legendre", {f64({-1.5, -0.3, 0.4, 2})}, [](Builder& b, const Ids& in) {
    const Term x(b, in[0]);
    return ops::orthogonal_polynomial(ops::Recurrence::kLegendre, x, ops::number_like(x, 4)).id();
  });
}

#include "compiler/ops/composite/incomplete_gamma.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "compiler/ops/composite/special.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {
namespace {

using graph::OpKind;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// x^a exp(-x) / gamma(a + 1)
Term power_over_gamma(Term a, Term x) { return exp(a * log(x) - x - lgamma(a + 1.0)); }

// P by its power series. Accurate for x < max(a, 2), and for large a where x < 0.6 a.
Term lower_series(Term a, Term x) {
  constexpr int kTerms = 96;
  Term sum = number_like(x, 1);
  for (int n = kTerms; n >= 1; --n) sum = sum * (x / (a + n)) + 1.0;
  return power_over_gamma(a, x) * sum;
}
// Q by Legendre's continued fraction. Accurate for x > max(a, 2), and for large a where x > 1.4 a.
Term upper_fraction(Term a, Term x) {
  constexpr int kTerms = 64;
  Term out = x - a + (2 * kTerms + 1);
  for (int n = kTerms; n >= 1; --n) out = x - a + (2 * n - 1) - subtract_from(n, a) * n / out;
  return power_over_gamma(a, x) * a / out;
}

struct Quadrature {
  std::vector<double> points, weights;
};
// Gauss and Legendre's rule on [0, 1].
Quadrature quadrature(int n) {
  Quadrature out;
  for (int i = 0; i < n; ++i) {
    double x = std::cos(std::numbers::pi * (i + 0.75) / (n + 0.5)), slope = 0;
    for (int round = 0; round < 8; ++round) {
      double before = 1, value = x;
      for (int k = 2; k <= n; ++k) {
        const double next = ((2 * k - 1) * x * value - (k - 1) * before) / k;
        before = value, value = next;
      }
      slope = n * (x * value - before) / (x * x - 1);
      x -= value / slope;
    }
    out.points.push_back((x + 1) / 2);
    out.weights.push_back(1 / ((1 - x * x) * slope * slope));
  }
  return out;
}

// Large a and x within 0.4 a: the integral of t^m exp(-t) / gamma(a), m = a - 1, from x away from its
// maximum at m to where it is negligible. Its width is sqrt(m).
Term tail_integral(Term a, Term x) {
  constexpr double kNegligible = 90;  // -log of what is left, at least
  constexpr int kPoints = 32;
  graph::Builder& b = x.builder();
  const Term m = a - 1.0, width = sqrt(m), above = greater(x, m), distance = abs(x - m) / width;
  const Term length = width * (2 * kNegligible) / (sqrt(square(distance) + 2 * kNegligible) + distance);
  const Term reach = select(above, length, minimum(length, x));  // to 0 at most
  const Quadrature rule = quadrature(kPoints);
  const Dims last{x.rank()};
  const Term step = unsqueeze(select(above, reach, -reach), last), wide = unsqueeze(m, last);
  const Term u = (unsqueeze(x - m, last) + step * float_table(b, rule.points, DType::kF64)) / wide;
  const Term height = exp(wide * (apply(OpKind::kLog1p, u) - u));  // relative to the maximum
  const Term area = reduce_sum(height * float_table(b, rule.weights, DType::kF64), last) * reach;
  // Stirling's series of gamma(a) = m^m exp(-m) sqrt(2 pi m) exp(rest).
  const Term r = divide_into(1, m), s = square(r);
  const Term rest = r * (s * (s * (s * (-1.0 / 1680) + 1.0 / 1260) - 1.0 / 360) + 1.0 / 12);
  return area * exp(-rest) / sqrt(m * (2 * std::numbers::pi));
}

}  // namespace

IncompleteGamma incomplete_gamma(Term a, Term x) {
  constexpr double kLarge = 20;
  const Term infinite_a = apply(OpKind::kIsInf, a), infinite_x = apply(OpKind::kIsInf, x);
  const Term positive = logical_and(greater(a, 0), greater(x, 0));
  const Term plain = logical_and(positive, logical_not(logical_or(infinite_a, infinite_x)));
  const Term central = logical_and(plain, logical_and(greater_equal(a, kLarge), less(abs(x - a), a * 0.4)));
  const Term low = logical_and(logical_and(plain, logical_not(central)), less(x, maximum(a, 2)));
  const Term high = logical_and(plain, logical_not(logical_or(central, low)));
  const Term p = lower_series(select(low, a, 1), select(low, x, 1));
  const Term q = upper_fraction(select(high, a, 1), select(high, x, 2));
  const Term own = select(central, a, kLarge), at = select(central, x, kLarge);
  const Term tail = tail_integral(own, at);
  const Term of_upper = logical_or(high, logical_and(central, greater(x, a - 1.0)));
  const Term part = select(central, tail, select(low, p, q)), rest = subtract_from(1, part);
  // Where a or x is 0 or infinite, P is 0 or 1.
  const Term full = logical_or(equal(a, 0), logical_and(infinite_x, logical_not(infinite_a)));
  const Term both = logical_or(logical_and(equal(a, 0), equal(x, 0)), logical_and(infinite_a, infinite_x));
  const Term defined = logical_and(logical_and(greater_equal(a, 0), greater_equal(x, 0)), logical_not(both));
  const auto chosen = [&](Term inside, double at_full, double otherwise) {
    const Term edge = select(full, number_like(x, at_full), number_like(x, otherwise));
    return select(defined, select(plain, inside, edge), kNan);
  };
  return {chosen(select(of_upper, rest, part), 1, 0), chosen(select(of_upper, part, rest), 0, 1)};
}

}  // namespace stridec::ops

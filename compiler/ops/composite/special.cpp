#include "compiler/ops/composite/special.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "compiler/ops/composite/chebyshev.h"

namespace stridec::ops {
namespace {

using graph::OpKind;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Term is_whole(Term x) { return equal(x, apply(OpKind::kFloor, x)); }
// The distance to the nearest integer, with its sign: exact, so that it keeps the digits of an x near 0.
Term from_nearest(Term x) { return x - apply(OpKind::kRound, x); }
// x where `low` holds. Elsewhere the factor that reflects is not used, and could be infinite, with a
// gradient of NaN.
Term reflected_argument(Term x, Term low) { return select(low, x, 0.25); }
// |sin(pi x)|
Term sin_pi_size(Term x) { return abs(apply(OpKind::kSin, from_nearest(x) * std::numbers::pi)); }

// Lanczos' approximation, for x >= 0.5.
Term lgamma_of_positive(Term x) {
  constexpr double kG = 7;
  constexpr double kSeries[] = {676.5203681218851,     -1259.1392167224028,  771.32342877765313,
                                -176.61502916214059,   12.507343278686905,   -0.13857109526572012,
                                9.9843695780195716e-6, 1.5056327351493116e-7};
  const Term z = x - 1;
  Term sum = number_like(x, 0.99999999999980993);
  for (size_t i = 0; i < std::size(kSeries); ++i)
    sum = sum + divide_into(kSeries[i], z + static_cast<double>(i + 1));
  const Term t = z + (kG + 0.5);
  const Term out = (z + 0.5) * (log(t) - 1) - kG + log(sum) + 0.5 * std::log(2 * std::numbers::pi);
  return select(apply(OpKind::kIsInf, x), x, out);
}

}  // namespace

Term lgamma(Term x) {
  const Term low = less(x, 0.5), y = select(low, subtract_from(1, x), x), g = lgamma_of_positive(y);
  const Term reflected =
      subtract_from(std::log(std::numbers::pi), log(sin_pi_size(reflected_argument(x, low)))) - g;
  const Term out = select(low, reflected, g);
  return select(logical_or(logical_and(is_whole(x), less_equal(x, 0)), apply(OpKind::kIsInf, x)), kInf, out);
}

Term digamma(Term x) {
  const Term low = less(x, 0.5), y = select(low, subtract_from(1, x), x);
  Term shift = divide_into(1, y);
  for (int k = 1; k < 6; ++k) shift = shift + divide_into(1, y + k);
  const Term z = y + 6, r = divide_into(1, square(z));
  // The terms B(2k) / 2k of the asymptotic series.
  constexpr double kSeries[] = {1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12};
  const Term positive = log(z) - divide_into(0.5, z) - r * power_sum(kSeries, r) - shift;
  // cot as cos / sin: its derivatives stay accurate half-way between poles, where cot is 0.
  const Term angle = from_nearest(reflected_argument(x, low)) * std::numbers::pi;
  const Term reflected =
      positive - apply(OpKind::kCos, angle) / apply(OpKind::kSin, angle) * std::numbers::pi;
  const Term out = select(low, reflected, positive);
  const Term pole = select(equal(x, 0), number_like(x, -kInf), number_like(x, kNan));
  return select(logical_and(is_whole(x), less_equal(x, 0)), pole, out);
}

namespace {

// The derivative of digamma.
Term trigamma(Term x) {
  const Term low = less(x, 0.5), y = select(low, subtract_from(1, x), x);
  Term shift = divide_into(1, square(y));
  for (int k = 1; k < 6; ++k) shift = shift + divide_into(1, square(y + k));
  const Term z = y + 6, r = divide_into(1, z);
  constexpr double kSeries[] = {1, 1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6};
  const Term positive = shift + r * power_sum(kSeries, square(r)) + square(r) * 0.5;
  return select(low,
                square(divide_into(std::numbers::pi, sin_pi_size(reflected_argument(x, low)))) - positive,
                positive);
}

// For q > 0.
Term zeta_of_positive(Term s, Term q) {
  constexpr int kTerms = 32;
  Term sum = pow(q, -s);
  for (int k = 1; k < kTerms; ++k) sum = sum + pow(q + k, -s);
  // The rest by Euler and Maclaurin: B(2j) / (2j)! s (s + 1) ... (s + 2j - 2) a^(1 - 2j - s).
  constexpr double kSeries[] = {1. / 12, -1. / 720, 1. / 30240, -1. / 1209600, 1. / 47900160};
  const Term a = q + kTerms, power = pow(a, -s);
  sum = sum + power * (a / (s - 1) + 0.5);
  Term factor = s * power / a;
  for (int j = 0; j < static_cast<int>(std::size(kSeries)); ++j) {
    sum = sum + factor * kSeries[j];
    factor = factor * (s + (2 * j + 1)) * (s + (2 * j + 2)) / square(a);
  }
  return sum;
}

}  // namespace

Term zeta(Term s, Term q) {
  // For q < 0 the terms below 0 are those of two positive arguments, in the other order: with the fraction f
  // of q, zeta(s, f) + (-1)^s (zeta(s, 1 - f) - zeta(s, 1 - q)), for whole s.
  const Term whole = apply(OpKind::kFloor, q), negative = less(q, 0);
  const Term rest = whole - q + 1;  // 1 - f, exact near 0
  const std::vector<Term> arguments = {unsqueeze(select(negative, q - whole, q), {0}),
                                       unsqueeze(select(negative, rest, 1), {0}),
                                       unsqueeze(select(negative, subtract_from(1, q), 1), {0})};
  const Term stacked = concat(arguments, 0), all = zeta_of_positive(unsqueeze(s, {0}), stacked);
  const auto part = [&](int64_t i) { return squeeze(slice(all, 0, i, 1), {0}); };
  const Term below = part(1) - part(2), half = s * 0.5;
  const Term sum = select(negative, part(0) + select(is_whole(half), below, -below), part(0));
  const Term defined = logical_or(greater(q, 0), is_whole(s));
  Term out = select(defined, sum, kNan);
  out = select(logical_and(less_equal(q, 0), is_whole(q)), kInf, out);
  return select(equal(s, 1), kInf, select(less(s, 1), kNan, out));
}

Term polygamma(int64_t order, Term x) {
  if (order == 0) return digamma(x);
  if (order == 1) return trigamma(x);
  double factor = order % 2 == 0 ? -1 : 1;
  for (int64_t k = 2; k <= order; ++k) factor *= static_cast<double>(k);
  return zeta(number_like(x, static_cast<double>(order + 1)), x) * factor;
}

namespace {

// (1 + 2 x) erfcx(x), x >= 0, in (x - 3.75) / (x + 3.75) (Shepherd and Laframboise 1981), by
// tests/fit_chebyshev.py.
constexpr double kErfcx[] = {
    1.1775789345674017,      -0.0045900545806464776,  -0.084249133366517917,   0.059209939998191893,
    -0.026658668435305753,   0.0090749976707052652,   -0.0024131635404176081,  0.00049077583652580863,
    -6.9169733025012042e-05, 4.1390279860730314e-06,  7.7403830661986544e-07,  -2.1886401049233306e-07,
    1.0764999465676163e-08,  4.5219598112178226e-09,  -7.7544002088930772e-10, -6.3180883420653338e-11,
    2.8687950092083593e-11,  1.9455866305585925e-13,  -9.6546970208957672e-13, 3.2525449797126943e-14,
    3.347808383221644e-14,   -1.8646019669105537e-15, -1.2508369942330694e-15, 7.4138179958645436e-17,
    5.0635741013932719e-17};

Term erfcx_of_positive(Term x) {
  return chebyshev_sum(kErfcx, subtract_from(1, divide_into(7.5, x + 3.75))) / (x * 2.0 + 1.0);
}

}  // namespace

Term erfcx(Term x) {
  const Term negative = less(x, 0), positive = erfcx_of_positive(abs(x));
  return select(negative, exp(square(select(negative, x, 0))) * 2 - positive, positive);
}

Term erfc(Term x) {
  const Term low = less(x, 1), far = select(low, 1, x);
  return select(low, subtract_from(1, erf(x)), exp(-square(far)) * erfcx_of_positive(far));
}

Term log_ndtr(Term x) {
  const Term z = x * std::numbers::sqrt2 * 0.5;
  const Term low = less(x, -1), far = select(low, z, -1);
  const Term tail = log(erfcx(-far) * 0.5) - square(far);
  return select(low, tail, apply(OpKind::kLog1p, erfc(z) * -0.5));
}

namespace {

// Wichura's algorithm AS 241, of p = 0.5 + q; `least` is the smaller of p and 1 - p.
Term normal_quantile(Term q, Term least) {
  constexpr double kA[] = {3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427,
                           13731.693765509461125, 45921.953931549871457, 67265.770927008700853,
                           33430.575583588128105, 2509.0809287301226727};
  constexpr double kB[] = {1,
                           42.313330701600911252,
                           687.18700749205790830,
                           5394.1960214247511077,
                           21213.794301586595867,
                           39307.895800092710610,
                           28729.085735721942674,
                           5226.4952788528545610};
  constexpr double kC[] = {1.42343711074968357734,   4.63033784615654529590,   5.76949722146069140550,
                           3.64784832476320460504,   1.27045825245236838258,   0.241780725177450611770,
                           0.0227238449892691845833, 7.74545014278341407640e-4};
  constexpr double kD[] = {1,
                           2.05319162663775882187,
                           1.67638483018380384940,
                           0.689767334985100004550,
                           0.148103976427480074590,
                           0.0151986665636164571966,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  constexpr double kE[] = {6.65790464350110377720,    5.46378491116411436990,   1.78482653991729133580,
                           0.296560571828504891230,   0.0265321895265761230930, 0.00124266094738807843860,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1,
                           0.599832206555887937690,
                           0.136929880922735805310,
                           0.0148753612908506148525,
                           7.86869131145613259100e-4,
                           1.84631831751005468180e-5,
                           1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  const Term r = subtract_from(0.180625, square(q));
  const Term middle = q * power_sum(kA, r) / power_sum(kB, r);
  const Term inside = greater(least, 0), s = sqrt(-log(select(inside, least, 0.5)));
  const Term u = s - 1.6, v = s - 5;
  const Term tail =
      select(less_equal(s, 5), power_sum(kC, u) / power_sum(kD, u), power_sum(kE, v) / power_sum(kF, v));
  const Term far = select(inside, tail, kInf);
  const Term out = select(less_equal(abs(q), 0.425), middle, select(less(q, 0), -far, far));
  return select(less(least, 0), kNan, select(apply(OpKind::kIsNan, q), q, out));
}

}  // namespace

Term ndtri(Term p) { return normal_quantile(p - 0.5, minimum(p, subtract_from(1, p))); }

// From y itself, whose digits 0.5 + y / 2 would lose near 0, and 1 - |y| near 1.
Term erfinv(Term y) {
  return normal_quantile(y * 0.5, subtract_from(1, abs(y)) * 0.5) * (std::numbers::sqrt2 * 0.5);
}

}  // namespace stridec::ops

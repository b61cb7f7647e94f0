// Functions of one complex number, and tests of one, whose results are real.
#include <algorithm>
#include <cstdlib>
#include <numbers>
#include <optional>
#include <unordered_map>

#include "compiler/frontend/aten/complex_rules.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term sin(Term x) { return apply(OpKind::kSin, x); }
Term cos(Term x) { return apply(OpKind::kCos, x); }
Term sinh(Term x) { return apply(OpKind::kSinh, x); }
Term cosh(Term x) { return apply(OpKind::kCosh, x); }
Term asinh(Term x) { return apply(OpKind::kAsinh, x); }
Term atan2(Term y, Term x) { return apply(OpKind::kAtan2, y, x); }
Term within(Term x, double bound) { return minimum(maximum(x, -bound), bound); }
Term has_sign(Term x) { return logical_or(less(x, 0), logical_and(equal(x, 0), less(divide_into(1, x), 0))); }

Complex plus(const Complex& z, double n) { return {z.re + n, z.im}; }
Complex one_minus(const Complex& z) { return {subtract_from(1, z.re), -z.im}; }
Complex times_i(const Complex& z) { return {-z.im, z.re}; }
Complex times_minus_i(const Complex& z) { return {z.im, -z.re}; }

Complex exponential(const Complex& z) {
  const Term size = exp(z.re);
  return {size * cos(z.im), size * sin(z.im)};
}
Complex exponential_minus_one(const Complex& z) {
  const Term half = sin(z.im * 0.5);
  return {apply(OpKind::kExpm1, z.re) * cos(z.im) - square(half) * 2, exp(z.re) * sin(z.im)};
}
Complex logarithm(const Complex& z) { return {log(length(z)), atan2(z.im, z.re)}; }
// The larger part of the square root comes from a sum, so that nothing cancels; the smaller part is computed
// from it. An imaginary part of -0.0 is below the branch cut.
Complex root(const Complex& z) {
  const Term larger = sqrt((length(z) + abs(z.re)) * 0.5), none = equal(larger, 0);
  const Term other = select(none, ops::number_like(larger, 0), abs(z.im) / (larger * 2));
  const Term right = greater_equal(z.re, 0), below = has_sign(z.im);
  const Term im = select(right, other, larger);
  return {select(right, larger, other), select(below, -im, im)};
}
Complex tanh_of(const Complex& z) {
  const Term x = within(z.re, 20) * 2, y = z.im * 2;  // beyond, it is 1 in any precision
  const Term divisor = cosh(x) + cos(y);
  return {sinh(x) / divisor, sin(y) / divisor};
}
Complex logistic(const Complex& z) {
  return reciprocal(plus(exponential({-within(z.re, 40), -z.im}), 1));  // exp() of more has no inverse
}
Complex direction(const Complex& z) {
  const Term size = length(z), none = equal(size, 0);
  const auto part = [&](Term t) { return select(none, ops::number_like(size, 0), t / size); };
  return {part(z.re), part(z.im)};
}
// W. Kahan, "Branch cuts for complex elementary functions", 1987.
Complex inverse_sine(const Complex& z) {
  const Complex minus_root = root(one_minus(z)), plus_root = root(plus(z, 1));
  return {atan2(z.re, (minus_root * plus_root).re), asinh((conjugate(minus_root) * plus_root).im)};
}
Complex inverse_cosine(const Complex& z) {
  const Complex minus_root = root(one_minus(z)), plus_root = root(plus(z, 1));
  return {atan2(minus_root.re, plus_root.re) * 2, asinh((conjugate(plus_root) * minus_root).im)};
}
Complex inverse_cosh(const Complex& z) {
  const Complex minus_root = root(plus(z, -1)), plus_root = root(plus(z, 1));
  return {asinh((conjugate(minus_root) * plus_root).re), atan2(minus_root.im, plus_root.re) * 2};
}
Complex inverse_sinh(const Complex& z) { return times_minus_i(inverse_sine(times_i(z))); }
Complex inverse_tanh(const Complex& z) {
  const Term y2 = square(z.im), left = subtract_from(1, z.re);
  const Term re = apply(OpKind::kLog1p, z.re * 4 / (square(left) + y2)) * 0.25;
  return {re, atan2(z.im * 2, left * (z.re + 1) - y2) * 0.5};
}
Complex inverse_tangent(const Complex& z) { return times_minus_i(inverse_tanh(times_i(z))); }
Complex sine(const Complex& z) { return {sin(z.re) * cosh(z.im), cos(z.re) * sinh(z.im)}; }
Complex cardinal_sine(const Complex& z) {
  const Complex x = z * std::numbers::pi;
  const Term none = logical_and(equal(z.re, 0), equal(z.im, 0));
  const Complex one = ops::number_like(x, 1, 0);
  return select(none, one, sine(x) * reciprocal(select(none, one, x)));
}

using Function = Complex (*)(const Complex& z);
const std::unordered_map<std::string_view, Function>& functions() {
  static const auto* const out = new std::unordered_map<std::string_view, Function>{
      {"acos", inverse_cosine},
      {"acosh", inverse_cosh},
      {"arccos", inverse_cosine},
      {"arccosh", inverse_cosh},
      {"arcsin", inverse_sine},
      {"arcsinh", inverse_sinh},
      {"arctan", inverse_tangent},
      {"arctanh", inverse_tanh},
      {"asin", inverse_sine},
      {"asinh", inverse_sinh},
      {"atan", inverse_tangent},
      {"atanh", inverse_tanh},
      {"cos", [](const Complex& z) { return Complex{cos(z.re) * cosh(z.im), -(sin(z.re) * sinh(z.im))}; }},
      {"cosh", [](const Complex& z) { return Complex{cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im)}; }},
      {"exp", exponential},
      {"exp2", [](const Complex& z) { return exponential(z * std::numbers::ln2); }},
      {"expm1", exponential_minus_one},
      {"log", logarithm},
      {"log10", [](const Complex& z) { return logarithm(z) * (1 / std::numbers::ln10); }},
      {"log1p", [](const Complex& z) { return logarithm(plus(z, 1)); }},
      {"log2", [](const Complex& z) { return logarithm(z) * (1 / std::numbers::ln2); }},
      {"reciprocal", [](const Complex& z) { return reciprocal(z); }},
      {"rsqrt", [](const Complex& z) { return reciprocal(root(z)); }},
      {"sgn", direction},
      {"sigmoid", logistic},
      {"silu", [](const Complex& z) { return z * logistic(z); }},
      {"sin", sine},
      {"sinc", cardinal_sine},
      {"sinh", [](const Complex& z) { return Complex{sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im)}; }},
      {"special_expit", logistic},
      {"special_expm1", exponential_minus_one},
      {"special_sinc", cardinal_sine},
      {"sqrt", root},
      {"square", [](const Complex& z) { return z * z; }},
      {"tan", [](const Complex& z) { return times_minus_i(tanh_of(times_i(z))); }},  // tan(z) = -i tanh(i z)
      {"tanh", tanh_of},
  };
  return *out;
}

using Test = Term (*)(const Complex& z);
const std::unordered_map<std::string_view, Test>& tests() {
  static const auto* const out = new std::unordered_map<std::string_view, Test>{
      {"isfinite",
       [](const Complex& z) { return logical_and(equal(z.re - z.re, 0), equal(z.im - z.im, 0)); }},
      {"isinf",
       [](const Complex& z) { return logical_or(apply(OpKind::kIsInf, z.re), apply(OpKind::kIsInf, z.im)); }},
      {"isnan",
       [](const Complex& z) { return logical_or(apply(OpKind::kIsNan, z.re), apply(OpKind::kIsNan, z.im)); }},
      {"isreal", [](const Complex& z) { return equal(z.im, 0); }},
  };
  return *out;
}

Results function_of(const ComplexCall& c) {
  return {joined_value(functions().at(c.name)(pair_of(c.b, c.values.at(0))))};
}
Results test_of(const ComplexCall& c) { return {tests().at(c.name)(pair_of(c.b, c.values.at(0)))}; }

// z^w by logarithms; 0 to anything but 0 is 0.
Complex power_of(const Complex& z, const Complex& w) {
  const auto is_zero = [](const Complex& n) { return logical_and(equal(n.re, 0), equal(n.im, 0)); };
  const Term zero = is_zero(z), one = is_zero(w);
  const Complex out = exponential(logarithm(z) * w);
  const Shape shape = broadcast(z.re.builder(), {out.re.shape(), zero.shape(), one.shape()}, "pow");
  const auto all = [&](Term t) { return expand(t, shape); };
  const auto at_zero = [&](Term t, double n) {
    return select(all(zero), select(all(one), all(ops::number_like(t, n)), all(ops::number_like(t, 0))),
                  all(t));
  };
  return {at_zero(out.re, 1), at_zero(out.im, 0)};
}
// Small integers are exponents of repeated products.
std::optional<int64_t> small_whole(Builder& b, const Value& w) {
  constexpr int64_t kMostProducts = 16;
  std::optional<int64_t> out;
  if (w.kind == Value::Kind::kInt && b.simplify(w.integer).is_const()) out = b.simplify(w.integer).value();
  if (w.kind == Value::Kind::kFloat && w.number == static_cast<double>(static_cast<int64_t>(w.number)))
    out = static_cast<int64_t>(w.number);
  return out && std::abs(*out) <= kMostProducts ? out : std::nullopt;
}
Results power(const ComplexCall& c) {
  Complex z = c.pair("self");
  if (c.name == "float_power") {
    const auto wide = [](Term t) { return cast(t, DType::kF64, false); };
    Complex w = c.pair("exponent");
    z = {wide(z.re), wide(z.im)}, w = {wide(w.re), wide(w.im)};
    return {joined_value(power_of(z, w))};
  }
  const std::optional<int64_t> whole = small_whole(c.b, c.value("exponent"));
  if (!whole) return {joined_value(power_of(z, c.pair("exponent")))};
  Complex out = ops::number_like(z, 1, 0);
  for (int64_t i = 0; i < std::abs(*whole); ++i) out = i == 0 ? z : out * z;
  return {joined_value(*whole < 0 ? reciprocal(out) : out)};
}

std::vector<ComplexRule> rules() {
  std::vector<ComplexRule> out{{"float_power", power}, {"pow", power}};
  for (const auto& [name, function] : functions()) out.push_back({name, function_of});
  for (const auto& [name, test] : tests()) out.push_back({name, test_of});
  return out;
}

}  // namespace

std::span<const ComplexRule> complex_function_rules() {
  static const auto* const out = new std::vector<ComplexRule>(rules());
  return *out;
}

}  // namespace stridec::aten

// Arithmetic of two or three operands, with PyTorch's type promotion.
#include <cmath>
#include <limits>
#include <numbers>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/integers.h"
#include "compiler/ops/floor_quotient.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::aten {
namespace {

using namespace ops;

bool either_complex(const Context& c) { return is_complex(c.arg("self")) || is_complex(c.arg("other")); }

bool is_one(const Value& v) {
  return (v.kind == Value::Kind::kFloat && v.number == 1) ||
         ((v.kind == Value::Kind::kInt || v.kind == Value::Kind::kBool) && v.integer.is_const(1));
}

// y * alpha, for add and sub.
Term scaled(const Context& c, Term y, const char* alpha = "alpha") {
  if (!c.has(alpha) || is_one(c.arg(alpha))) return y;
  if (is_bool(y.dtype())) c.unsupported("alpha with bools");
  return y * c.scalar(alpha, y.dtype());
}

Results add(Context& c) {
  if (either_complex(c)) return complex_arithmetic(c, ComplexOp::kAdd);
  const auto [x, y] = promoted(c, "self", "other");
  if (is_bool(x.dtype())) return {logical_or(x, scaled(c, y))};
  return {x + scaled(c, y)};
}
Results sub(Context& c) {
  if (either_complex(c)) return complex_arithmetic(c, ComplexOp::kSub);
  const auto [x, y] = promoted(c, "self", "other");
  if (is_bool(x.dtype())) c.does_not_fit("subtraction of bools");
  return {x - scaled(c, y)};
}
Results rsub(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  return {y - scaled(c, x)};
}
Term multiplied(Term x, Term y) { return is_bool(x.dtype()) ? logical_and(x, y) : x * y; }
Results mul(Context& c) {
  if (either_complex(c)) return complex_arithmetic(c, ComplexOp::kMul);
  const auto [x, y] = promoted(c, "self", "other");
  return {multiplied(x, y)};
}

// Integers divide by zero to nothing in PyTorch (an error); the primitives give 0.
Term floor_divided(Term x, Term y) {
  if (is_float(x.dtype())) {
    // C's fmod first, as PyTorch (c10/util/BFloat16-math.h, div_floor): x / y alone rounds up near integers.
    const Term wx = widen(x), wy = widen(y), quotient = wx / wy;
    const Term rem = apply(OpKind::kRem, wx, wy);
    const Term adjusted = (wx - rem) / wy;
    const Term down =
        select(logical_and(logical_not(equal(rem, 0)), apply(OpKind::kNe, less(wy, 0), less(rem, 0))),
               adjusted - 1.0, adjusted);
    const Term whole = apply(OpKind::kFloor, down);
    const Term near = select(greater(down - whole, 0.5), whole + 1.0, whole);
    const Term nonzero = select(equal(down, 0), quotient * 0.0, near);
    return cast(select(equal(wy, 0), quotient, nonzero), x.dtype(), false);
  }
  return floor_quotient(x, y);
}
Term divided(const Context& c, const std::string& mode) {
  if (mode.empty()) {
    const auto [x, y] = promoted_float(c, "self", "other");
    return x / y;
  }
  auto [x, y] = promoted(c, "self", "other");
  if (is_bool(x.dtype())) c.does_not_fit("division of bools with a rounding mode");
  if (mode == "floor") return floor_divided(x, y);
  if (mode != "trunc") c.does_not_fit("the rounding mode is neither trunc nor floor");
  return is_float(x.dtype()) ? apply(OpKind::kTrunc, x / y) : x / y;
}
Results div(Context& c) {
  if (either_complex(c)) return complex_arithmetic(c, ComplexOp::kDiv);
  return {divided(c, c.has("rounding_mode") ? c.text("rounding_mode") : "")};
}
Results true_divide(Context& c) {
  if (either_complex(c)) return complex_arithmetic(c, ComplexOp::kDiv);
  return {divided(c, "")};
}
Results floor_divide(Context& c) { return {divided(c, "floor")}; }

Results remainder(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  return {apply(OpKind::kMod, x, y)};
}
Results fmod(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  return {apply(OpKind::kRem, x, y)};
}

std::optional<double> known(const Value& v) {
  if (v.kind == Value::Kind::kFloat) return v.number;
  if (v.kind == Value::Kind::kInt && v.integer.is_const()) return static_cast<double>(v.integer.value());
  return std::nullopt;
}

Results op_pow(Context& c) {
  const DType to = result_type(c.b, {c.arg("self"), c.arg("exponent")});
  if (is_bool(to)) c.unsupported("powers of bools");
  const Term x = cast(as_term(c.b, c.arg("self")), to, false);
  const auto exponent = known(c.arg("exponent"));
  const Term w = is_float(to) ? widen(x) : x;
  const auto rounded = [&](Term t) -> Results { return {cast(t, to, false)}; };
  if (exponent && is_float(to)) {
    if (*exponent == 0) return {filled(c.b, x.shape(), to, 1)};
    if (*exponent == 1) return {x};
    if (*exponent == 2) return rounded(square(w));
    if (*exponent == 3) return rounded(square(w) * w);
    if (*exponent == 0.5) return rounded(sqrt(w));
    if (*exponent == -0.5) return rounded(rsqrt(w));
    if (*exponent == -1) return rounded(divide_into(1, w));
    if (*exponent == -2) return rounded(divide_into(1, square(w)));
  }
  if (!is_float(to) && exponent && *exponent < 0) c.does_not_fit("a negative power of integers");
  const Term y = cast(as_term(c.b, c.arg("exponent")), w.dtype(), false);
  return rounded(pow(w, y));
}

Results float_power(Context& c) {
  const Term x = cast(as_term(c.b, c.arg("self")), DType::kF64, false);
  return {pow(x, cast(as_term(c.b, c.arg("exponent")), DType::kF64, false))};
}

// NaN in either operand gives NaN in kMin and kMax; fmin and fmax prefer the number.
template <OpKind kind>
Results extremum(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  if (is_bool(x.dtype())) return {kind == OpKind::kMax ? logical_or(x, y) : logical_and(x, y)};
  return {apply(kind, x, y)};
}
template <OpKind kind>
Results number_extremum(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  if (!is_float(x.dtype())) return extremum<kind>(c);
  const Term both = apply(kind, x, y);
  const auto spread = [&](Term t) { return expand(t, both.shape()); };
  const Term rest = select(spread(apply(OpKind::kIsNan, y)), spread(x), both);
  return {select(spread(apply(OpKind::kIsNan, x)), spread(y), rest)};
}

Results clamp(Context& c) {
  std::vector<Value> all{c.arg("self")};
  for (const char* bound : {"min", "max"})
    if (c.has(bound)) all.push_back(c.arg(bound));
  const DType to = result_type(c.b, all);
  Term x = cast(c.in("self"), to, false);
  if (is_bool(to)) {
    if (c.has("min")) x = logical_or(x, as_term(c.b, c.arg("min")));
    return {c.has("max") ? logical_and(x, as_term(c.b, c.arg("max"))) : x};
  }
  // At a bound PyTorch's gradient is 0 if the bound is a number, and half if it is a tensor.
  const auto ties = [&](const char* bound) { return c.arg(bound).is_tensor() ? Ties::kHalf : Ties::kSecond; };
  if (c.has("min")) x = maximum(x, cast(as_term(c.b, c.arg("min")), to, false), ties("min"));
  if (c.has("max")) x = minimum(x, cast(as_term(c.b, c.arg("max")), to, false), ties("max"));
  return {x};
}

Results where(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  const Term condition = c.in("condition");
  return {select(is_bool(condition.dtype()) ? condition : logical_not(equal(condition, 0)), x, y)};
}

template <bool division>
Results addc(Context& c) {
  const DType to = result_type(c.b, {c.arg("self"), c.arg("tensor1"), c.arg("tensor2")});
  const auto at = [&](const char* name) { return cast(c.in(name), to, false); };
  Term product = division ? at("tensor1") / at("tensor2") : at("tensor1") * at("tensor2");
  if (!is_one(c.arg("value"))) product = product * c.scalar("value", to);
  return {at("self") + product};
}

Results lerp(Context& c) {
  const Term x = c.in("self"), y = c.in("end");
  const Term w = cast(as_term(c.b, c.arg("weight")), x.dtype(), false);
  // Both forms of PyTorch: from the nearer end.
  return {select(less(abs(w), 0.5), x + w * (y - x), y - (y - x) * subtract_from(1, w))};
}

Results atan2(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  return {apply(OpKind::kAtan2, x, y)};
}
Results hypot(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  return {cast(ops::hypot(widen(x), widen(y)), x.dtype(), false)};
}
Results xlogy(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term wx = widen(x), wy = widen(y), product = wx * log(wy);
  const Term zero = expand(equal(wx, 0), product.shape()),
             nan = expand(apply(OpKind::kIsNan, wy), product.shape());
  return {cast(select(logical_and(zero, logical_not(nan)), 0, product), x.dtype(), false)};
}
Results logaddexp(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term a = widen(x), b = widen(y), high = maximum(a, b), low = minimum(a, b);
  const Term sum = high + apply(OpKind::kLog1p, exp(low - high));
  return {cast(select(apply(OpKind::kIsInf, high), high, sum), x.dtype(), false)};
}
Results logaddexp2(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term a = widen(x), b = widen(y), high = maximum(a, b), low = minimum(a, b);
  const Term tail = apply(OpKind::kLog1p, exp((low - high) * std::numbers::ln2)) * (1 / std::numbers::ln2);
  return {cast(select(apply(OpKind::kIsInf, high), high, high + tail), x.dtype(), false)};
}
Results ldexp(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term w = widen(y);
  return {cast(widen(x) * pow(expand(number_like(w, 2), w.shape()), w), x.dtype(), false)};
}
// |x - y| <= atol + rtol |y|, computed in the operands' own dtype as PyTorch does.
Results isclose(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  const Term same = equal(x, y);
  if (is_bool(x.dtype())) return {same};
  const Term a = is_float(x.dtype()) ? widen(x) : cast(x, DType::kF64, false),
             b = is_float(y.dtype()) ? widen(y) : cast(y, DType::kF64, false);
  const Term gap = abs(a - b), allowed = abs(b) * c.number("rtol") + c.number("atol");
  const Term finite = logical_not(logical_or(apply(OpKind::kIsInf, gap), apply(OpKind::kIsNan, gap)));
  Term close = logical_or(same, logical_and(finite, less_equal(gap, allowed)));
  if (c.flag("equal_nan") && is_float(x.dtype()))
    close = logical_or(close, logical_and(apply(OpKind::kIsNan, a), apply(OpKind::kIsNan, b)));
  return {close};
}
Results copysign(Context& c) {
  const auto [x, y] = promoted_float(c, "self", "other");
  const Term negative = logical_or(less(y, 0), logical_and(equal(y, 0), less(divide_into(1, y), 0)));
  const Term size = abs(x);
  return {select(negative, -size, size)};
}
// Numbers of one sign are ordered as their bits are.
Results nextafter(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  const int width = byte_size(x.dtype());
  if (!is_float(x.dtype()) || width < 2) c.unsupported("nextafter of this dtype");
  const DType bits = width == 8 ? DType::kI64 : width == 4 ? DType::kI32 : DType::kI16;
  const Term at = bitcast(x, bits), away = equal(less(x, y), greater(x, 0));
  const Term moved = bitcast(select(away, at + 1.0, at - 1.0), x.dtype());
  const Term tiny = bitcast(number(c.b, bits, 1), x.dtype());
  const Term next = select(equal(x, 0), select(less(y, 0), -tiny, tiny), moved);
  const Term none = logical_or(apply(OpKind::kIsNan, x), apply(OpKind::kIsNan, y));
  return {select(none, std::numeric_limits<double>::quiet_NaN(), select(equal(x, y), y, next))};
}
Results heaviside(Context& c) {
  const auto [x, y] = promoted(c, "self", "values");
  if (is_bool(x.dtype())) return {logical_or(x, y)};
  // 0 of a NaN, as PyTorch has it.
  return {select(equal(x, 0), y, select(greater(x, 0), number_like(x, 1), number_like(x, 0)))};
}

template <Term (*function)(Term, Term)>
Results of_integers(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  if (!is_integer(x.dtype())) c.does_not_fit("the operands are integers");
  const Shape shape = broadcast(c.b, {x.shape(), y.shape()}, c.schema.name);
  return {function(expand(x, shape), expand(y, shape))};
}
Results frexp(Context& c) {
  const Term x = c.in("self");
  if (!is_float(x.dtype())) c.does_not_fit("frexp takes floats");
  const Exponential e = mantissa_and_exponent(x);
  return {e.mantissa, e.exponent};
}

constexpr Row kRows[] = {
    {"add", add, Numbers::kComplex},
    {"addcdiv", addc<true>},
    {"addcmul", addc<false>},
    {"arctan2", atan2},
    {"atan2", atan2},
    {"clamp", clamp},
    {"clamp_max", clamp},
    {"clamp_min", clamp},
    {"clip", clamp},
    {"copysign", copysign},
    {"div", div, Numbers::kComplex},
    {"divide", div, Numbers::kComplex},
    {"floor_divide", floor_divide},
    {"fmax", number_extremum<OpKind::kMax>},
    {"fmin", number_extremum<OpKind::kMin>},
    {"fmod", fmod},
    {"frexp", frexp},
    {"gcd", of_integers<greatest_common_divisor>},
    {"heaviside", heaviside},
    {"hypot", hypot},
    {"isclose", isclose},
    {"lcm", of_integers<least_common_multiple>},
    {"ldexp", ldexp},
    {"lerp", lerp},
    {"logaddexp", logaddexp},
    {"logaddexp2", logaddexp2},
    {"max.other", extremum<OpKind::kMax>},
    {"maximum", extremum<OpKind::kMax>},
    {"min.other", extremum<OpKind::kMin>},
    {"minimum", extremum<OpKind::kMin>},
    {"mul", mul, Numbers::kComplex},
    {"multiply", mul, Numbers::kComplex},
    {"nextafter", nextafter},
    {"pow", op_pow},
    {"float_power", float_power},
    {"remainder", remainder},
    {"rsub", rsub},
    {"special_xlogy", xlogy},
    {"sub", sub, Numbers::kComplex},
    {"subtract", sub, Numbers::kComplex},
    {"true_divide", true_divide, Numbers::kComplex},
    {"where.Scalar", where},
    {"where.ScalarOther", where},
    {"where.ScalarSelf", where},
    {"where.self", where},
    {"xlogy", xlogy},
};

}  // namespace

std::span<const Row> arithmetic_rows() { return kRows; }

}  // namespace stridec::aten

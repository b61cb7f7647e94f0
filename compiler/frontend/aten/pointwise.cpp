// Elementwise operators of one tensor, comparisons and logic.
#include <cmath>
#include <limits>
#include <numbers>

#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/activations.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Floats stay, integers and bools become f32. Computed in f32 or wider, rounded once.
template <class F>
Results in_floats(Context& c, F&& formula) {
  const Term x = c.in("self");
  const DType to = float_type(x.dtype());
  return {cast(formula(widen(cast(x, to, false))), to, false)};
}

template <OpKind kind>
Results float_unary(Context& c) {
  return in_floats(c, [](Term x) { return apply(kind, x); });
}

// Rounding operators leave integers alone.
template <OpKind kind>
Results rounding(Context& c) {
  const Term x = c.in("self");
  return {is_float(x.dtype()) ? apply(kind, x) : x};
}
Results op_round(Context& c) {
  const Term x = c.in("self");
  const int64_t decimals = c.names("decimals") ? c.integer("decimals") : 0;
  if (!is_float(x.dtype())) return {x};
  if (decimals == 0) return {apply(OpKind::kRound, x)};
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  const Term w = widen(x);
  const Term y =
      decimals > 0 ? apply(OpKind::kRound, w * scale) / scale : apply(OpKind::kRound, w / scale) * scale;
  return {cast(y, x.dtype(), false)};
}
Results frac(Context& c) {
  const Term x = c.in("self");
  return {x - apply(OpKind::kTrunc, x)};
}

Results op_neg(Context& c) { return {-c.in("self")}; }
Results op_abs(Context& c) {
  if (is_complex(c.arg("self"))) return {length(pair_of(c.b, c.arg("self")))};
  const Term x = c.in("self");
  return {is_bool(x.dtype()) ? x : abs(x)};
}
Results sign(Context& c) {
  const Term x = c.in("self");
  if (is_bool(x.dtype())) return {x};
  const Term s = apply(OpKind::kSign, x);
  return {is_float(x.dtype()) ? select(apply(OpKind::kIsNan, x), 0, s) : s};
}
Results reciprocal(Context& c) {
  return in_floats(c, [](Term x) { return divide_into(1, x); });
}
Results op_square(Context& c) {
  const Term x = c.in("self");
  if (is_bool(x.dtype())) return {cast(x, DType::kI64, false)};
  return {x * x};
}
Results sigmoid_row(Context& c) {
  return in_floats(c, [](Term x) { return sigmoid(x); });
}
Results exp2(Context& c) {
  return in_floats(c, [](Term x) { return exp(x * std::numbers::ln2); });
}
Results log2(Context& c) {
  return in_floats(c, [](Term x) { return log(x) * (1 / std::numbers::ln2); });
}
Results log10(Context& c) {
  return in_floats(c, [](Term x) { return log(x) * (1 / std::numbers::ln10); });
}
Results sinc(Context& c) {
  return in_floats(c, [](Term x) {
    const Term a = x * std::numbers::pi;
    return select(equal(a, 0), 1, apply(OpKind::kSin, a) / a);
  });
}
Results logit(Context& c) {
  const auto eps = c.optional_number("eps");
  return in_floats(c, [&](Term x) {
    // The lower bound comes first, also where it is the larger one (eps above 0.5).
    const Term z = eps ? select(less(x, *eps), *eps, select(greater(x, 1 - *eps), 1 - *eps, x)) : x;
    return log(z / subtract_from(1, z));
  });
}
Results deg2rad(Context& c) {
  return in_floats(c, [](Term x) { return x * (std::numbers::pi / 180); });
}
Results rad2deg(Context& c) {
  return in_floats(c, [](Term x) { return x * (180 / std::numbers::pi); });
}

Results nan_to_num(Context& c) {
  const Term x = c.in("self");
  if (!is_float(x.dtype())) return {x};
  double largest = std::numeric_limits<float>::max();
  if (x.dtype() == DType::kF64) largest = std::numeric_limits<double>::max();
  if (x.dtype() == DType::kF16) largest = 65504;
  if (x.dtype() == DType::kBF16) largest = 3.3895313892515355e38;
  const double nan = c.optional_number("nan").value_or(0);
  const double high = c.optional_number("posinf").value_or(largest),
               low = c.optional_number("neginf").value_or(-largest);
  const Term finite =
      select(apply(OpKind::kIsInf, x), select(less(x, 0), number_like(x, low), number_like(x, high)), x);
  return {select(apply(OpKind::kIsNan, x), nan, finite)};
}

Term truth(Term x) { return is_bool(x.dtype()) ? x : logical_not(equal(x, 0)); }

Results op_logical_not(Context& c) { return {logical_not(truth(c.in("self")))}; }
Results bitwise_not(Context& c) {
  const Term x = c.in("self");
  return {is_bool(x.dtype()) ? logical_not(x) : apply(OpKind::kBitNot, x)};
}

Term constant_truth(Term x, bool value) { return filled(x.builder(), x.shape(), DType::kBool, value); }
Results isnan(Context& c) {
  const Term x = c.in("self");
  return {is_float(x.dtype()) ? apply(OpKind::kIsNan, x) : constant_truth(x, false)};
}
Results isinf(Context& c) {
  const Term x = c.in("self");
  return {is_float(x.dtype()) ? apply(OpKind::kIsInf, x) : constant_truth(x, false)};
}
Results isfinite(Context& c) {
  const Term x = c.in("self");
  if (!is_float(x.dtype())) return {constant_truth(x, true)};
  return {logical_not(logical_or(apply(OpKind::kIsNan, x), apply(OpKind::kIsInf, x)))};
}
template <bool positive>
Results is_infinite(Context& c) {
  const Term x = c.in("self");
  if (!is_float(x.dtype())) return {constant_truth(x, false)};
  return {logical_and(apply(OpKind::kIsInf, x), positive ? greater(x, 0) : less(x, 0))};
}
Results signbit(Context& c) {
  const Term x = c.in("self");
  if (is_bool(x.dtype())) return {constant_truth(x, false)};
  // 1 / -0.0 is negative.
  if (is_float(x.dtype()))
    return {logical_or(less(x, 0), logical_and(equal(x, 0), less(divide_into(1, x), 0)))};
  return {less(x, 0)};
}

Results isreal(Context& c) { return {constant_truth(c.in("self"), true)}; }

enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe };

template <Compare how>
Results comparison(Context& c) {
  auto [x, y] = promoted(c, "self", "other");
  if (is_bool(x.dtype()) && how != Compare::kEq && how != Compare::kNe)
    x = cast(x, DType::kU8, false), y = cast(y, DType::kU8, false);
  switch (how) {
    case Compare::kEq: return {equal(x, y)};
    case Compare::kNe: return {apply(OpKind::kNe, x, y)};
    case Compare::kLt: return {less(x, y)};
    case Compare::kLe: return {less_equal(x, y)};
    case Compare::kGt: return {greater(x, y)};
    case Compare::kGe: return {greater_equal(x, y)};
  }
  return {};
}

template <OpKind kind>
Results logical(Context& c) {
  return {apply(kind, truth(as_term(c.b, c.arg("self"))), truth(as_term(c.b, c.arg("other"))))};
}

template <OpKind on_bools, OpKind on_integers>
Results bitwise(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  if (is_float(x.dtype())) c.does_not_fit("bitwise operators take integers and bools");
  return {apply(is_bool(x.dtype()) ? on_bools : on_integers, x, y)};
}
template <OpKind kind>
Results shift(Context& c) {
  const auto [x, y] = promoted(c, "self", "other");
  if (!is_integer(x.dtype())) c.unsupported("shifts of other numbers than integers");
  return {apply(kind, x, y)};
}

constexpr Row kRows[] = {
    {"abs", op_abs, Numbers::kComplex},
    {"absolute", op_abs, Numbers::kComplex},
    {"acos", float_unary<OpKind::kAcos>},
    {"acosh", float_unary<OpKind::kAcosh>},
    {"arccos", float_unary<OpKind::kAcos>},
    {"arccosh", float_unary<OpKind::kAcosh>},
    {"arcsin", float_unary<OpKind::kAsin>},
    {"arcsinh", float_unary<OpKind::kAsinh>},
    {"arctan", float_unary<OpKind::kAtan>},
    {"arctanh", float_unary<OpKind::kAtanh>},
    {"asin", float_unary<OpKind::kAsin>},
    {"asinh", float_unary<OpKind::kAsinh>},
    {"atan", float_unary<OpKind::kAtan>},
    {"atanh", float_unary<OpKind::kAtanh>},
    {"__and__", bitwise<OpKind::kAnd, OpKind::kBitAnd>},
    {"__or__", bitwise<OpKind::kOr, OpKind::kBitOr>},
    {"__xor__", bitwise<OpKind::kXor, OpKind::kBitXor>},
    {"__lshift__", shift<OpKind::kShl>},
    {"__rshift__", shift<OpKind::kShr>},
    {"bitwise_and", bitwise<OpKind::kAnd, OpKind::kBitAnd>},
    {"bitwise_left_shift", shift<OpKind::kShl>},
    {"bitwise_not", bitwise_not},
    {"bitwise_or", bitwise<OpKind::kOr, OpKind::kBitOr>},
    {"bitwise_right_shift", shift<OpKind::kShr>},
    {"bitwise_xor", bitwise<OpKind::kXor, OpKind::kBitXor>},
    {"ceil", rounding<OpKind::kCeil>},
    {"cos", float_unary<OpKind::kCos>},
    {"cosh", float_unary<OpKind::kCosh>},
    {"deg2rad", deg2rad},
    {"eq", comparison<Compare::kEq>},
    {"erf", float_unary<OpKind::kErf>},
    {"exp", float_unary<OpKind::kExp>},
    {"exp2", exp2},
    {"expm1", float_unary<OpKind::kExpm1>},
    {"fix", rounding<OpKind::kTrunc>},
    {"floor", rounding<OpKind::kFloor>},
    {"frac", frac},
    {"ge", comparison<Compare::kGe>},
    {"greater", comparison<Compare::kGt>},
    {"greater_equal", comparison<Compare::kGe>},
    {"gt", comparison<Compare::kGt>},
    {"isfinite", isfinite},
    {"isinf", isinf},
    {"isnan", isnan},
    {"isneginf", is_infinite<false>},
    {"isposinf", is_infinite<true>},
    {"isreal", isreal},
    {"le", comparison<Compare::kLe>},
    {"less", comparison<Compare::kLt>},
    {"less_equal", comparison<Compare::kLe>},
    {"log", float_unary<OpKind::kLog>},
    {"log10", log10},
    {"log1p", float_unary<OpKind::kLog1p>},
    {"log2", log2},
    {"logical_and", logical<OpKind::kAnd>},
    {"logical_not", op_logical_not},
    {"logical_or", logical<OpKind::kOr>},
    {"logical_xor", logical<OpKind::kXor>},
    {"logit", logit},
    {"lt", comparison<Compare::kLt>},
    {"nan_to_num", nan_to_num},
    {"ne", comparison<Compare::kNe>},
    {"neg", op_neg},
    {"negative", op_neg},
    {"not_equal", comparison<Compare::kNe>},
    {"rad2deg", rad2deg},
    {"reciprocal", reciprocal},
    {"round", op_round},
    {"rsqrt", float_unary<OpKind::kRsqrt>},
    {"sgn", sign},
    {"sigmoid", sigmoid_row},
    {"sign", sign},
    {"signbit", signbit},
    {"sin", float_unary<OpKind::kSin>},
    {"sinc", sinc},
    {"sinh", float_unary<OpKind::kSinh>},
    {"special_expit", sigmoid_row},
    {"special_erf", float_unary<OpKind::kErf>},
    {"special_logit", logit},
    {"special_sinc", sinc},
    {"sqrt", float_unary<OpKind::kSqrt>},
    {"square", op_square},
    {"tan", float_unary<OpKind::kTan>},
    {"tanh", float_unary<OpKind::kTanh>},
    {"trunc", rounding<OpKind::kTrunc>},
};

}  // namespace

std::span<const Row> pointwise_rows() { return kRows; }

}  // namespace stridec::aten

// Elementwise operators.
#include <cmath>

#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/arithmetic.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/random.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// Before version 7, the second operand was broadcast only with `broadcast` set; `axis` is the dim of the
// first operand where its dims start.
Term align_old(const Context& c, Term x, Term y) {
  if (c.version >= 7 || c.integer("broadcast", 0) == 0 || !c.has_attribute("axis")) return y;
  const int64_t at = c.axis(c.integer("axis"), x.rank());
  Shape shape = y.shape();
  while (static_cast<int64_t>(shape.size()) + at < x.rank()) shape.push_back(1);
  return ops::reshape(y, shape);
}

template <OpKind kind>
Outputs unary(Context& c) {
  return {apply(kind, c.in(0))};
}

template <OpKind kind>
Outputs binary(Context& c) {
  return {apply(kind, c.in(0), align_old(c, c.in(0), c.in(1)))};
}

template <OpKind kind>  // a > b is b < a
Outputs swapped(Context& c) {
  return {apply(kind, align_old(c, c.in(0), c.in(1)), c.in(0))};
}

template <OpKind kind>
Outputs variadic(Context& c) {
  Term out = c.in(0);
  for (size_t i = 1; i < c.input_count(); ++i) out = apply(kind, out, c.in(i));
  return {out};
}

Outputs mean(Context& c) {
  std::vector<Term> terms;
  for (size_t i = 0; i < c.input_count(); ++i) terms.push_back(c.in(i));
  return {mean_of(terms)};
}

Outputs identity(Context& c) { return {c.slot(0)}; }
Outputs op_relu(Context& c) { return {relu(c.in(0))}; }
Outputs op_softplus(Context& c) { return {softplus(c.in(0))}; }
Outputs op_softsign(Context& c) { return {softsign(c.in(0))}; }
Outputs op_mish(Context& c) { return {mish(c.in(0))}; }
Outputs op_hard_swish(Context& c) { return {hard_swish(c.in(0))}; }
Outputs op_gelu(Context& c) { return {gelu(c.in(0), c.text("approximate", "none") == "tanh")}; }
Outputs swish(Context& c) { return {silu(c.in(0), c.number("alpha", 1))}; }
Outputs op_elu(Context& c) { return {elu(c.in(0), c.number("alpha", 1))}; }
Outputs op_celu(Context& c) { return {celu(c.in(0), c.number("alpha", 1))}; }
Outputs op_leaky_relu(Context& c) { return {leaky_relu(c.in(0), c.number("alpha", 0.01))}; }
Outputs op_thresholded_relu(Context& c) { return {thresholded_relu(c.in(0), c.number("alpha", 1))}; }
Outputs op_hard_sigmoid(Context& c) {
  return {hard_sigmoid(c.in(0), c.number("alpha", 0.2f), c.number("beta", 0.5))};
}
Outputs op_shrink(Context& c) { return {shrink(c.in(0), c.number("lambd", 0.5), c.number("bias", 0))}; }

Outputs op_selu(Context& c) {
  const bool old = c.version < 6;
  return {selu(c.in(0), c.number("alpha", old ? 1.6732 : 1.67326319217681884765625),
               c.number("gamma", old ? 1.0507 : 1.05070102214813232421875))};
}

// Before version 7, a vector of slopes applies to the channels.
Outputs op_prelu(Context& c) {
  const Term x = c.in(0), slope = c.in(1);
  const bool of_channels = c.version < 7 && slope.rank() == 1 && x.rank() > 2;
  return {prelu(x, of_channels ? over_channels(slope, x.rank()) : slope)};
}

// Before version 11, the bounds are attributes.
Outputs op_clip(Context& c) {
  const Term x = c.in(0);
  if (c.version >= 11) return {clip(x, c.optional(1), c.optional(2))};
  const auto bound = [&](const char* name) {
    return c.has_attribute(name) ? std::optional(number_like(x, c.number(name, 0))) : std::nullopt;
  };
  return {clip(x, bound("min"), bound("max"))};
}

// Only narrow floats saturate; out-of-range integers wrap.
bool saturates(const Context& c, DType to) { return is_float(to) && c.integer("saturate", 1) != 0; }

Outputs op_cast(Context& c) {
  DType to = DType::kF32;
  if (const Attribute* a = c.node.find("to"); a && !a->strings.empty()) {  // before version 6: "FLOAT"
    static constexpr std::pair<const char*, DType> kNames[] = {
        {"FLOAT", DType::kF32},   {"UINT8", DType::kU8},   {"INT8", DType::kI8},    {"UINT16", DType::kU16},
        {"INT16", DType::kI16},   {"INT32", DType::kI32},  {"INT64", DType::kI64},  {"BOOL", DType::kBool},
        {"FLOAT16", DType::kF16}, {"DOUBLE", DType::kF64}, {"UINT32", DType::kU32}, {"UINT64", DType::kU64}};
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const auto& n) { return a->strings[0] == n.first; });
    if (found == std::end(kNames)) c.unsupported("cast to '" + a->strings[0] + "' is not supported");
    to = found->second;
  } else {
    to = c.dtype(static_cast<int>(c.integer("to")));
  }
  return {cast(c.in(0), to, saturates(c, to))};
}
Outputs cast_like(Context& c) {
  const DType to = c.in(1).dtype();
  return {cast(c.in(0), to, saturates(c, to))};
}
Outputs bit_cast(Context& c) {
  const DType to = c.dtype(static_cast<int>(c.integer("to")));
  // A bool is cast, because its bits are those of 0 or 1.
  if (is_bool(to) || is_bool(c.in(0).dtype()) || c.in(0).dtype() == to) return {cast(c.in(0), to)};
  return {bitcast(c.in(0), to)};
}

Outputs op_mod(Context& c) {
  return {apply(c.integer("fmod", 0) ? OpKind::kRem : OpKind::kMod, c.in(0), c.in(1))};
}

Outputs op_pow(Context& c) {
  const Term x = c.in(0), y = align_old(c, x, c.in(1));
  const auto exponent = is_float(x.dtype()) && y.rank() <= x.rank() ? c.constant_number(1) : std::nullopt;
  return {power(x, y, exponent)};
}

Outputs bit_shift(Context& c) {
  const std::string direction = c.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.does_not_fit("direction is '" + direction + "', not LEFT or RIGHT");
  return {apply(direction == "LEFT" ? OpKind::kShl : OpKind::kShr, c.in(0), c.in(1))};
}

Outputs is_inf(Context& c) {
  const bool negative = c.integer("detect_negative", 1) != 0, positive = c.integer("detect_positive", 1) != 0;
  return {is_infinite(c.in(0), negative, positive)};
}

Outputs where(Context& c) { return {select(c.in(0), c.in(1), c.in(2))}; }

// Inference returns the input. Training with ratio 0 keeps all elements.
Outputs op_dropout(Context& c) {
  const Term x = c.in(0);
  const DType mask = c.version >= 10 ? DType::kBool : x.dtype();
  const auto known_flag = c.constant_number(2), known_ratio = c.constant_number(1);
  const bool training = c.importer().training_form() ||
                        (c.version < 7 ? c.integer("is_test", 0) == 0
                                       : c.version >= 12 && c.has(2) && known_flag.value_or(1) != 0);
  const bool given = c.version >= 12 && c.has(1);
  if (!training || (given ? known_ratio.value_or(1) : c.number("ratio", 0.5)) == 0)
    return {x, filled(c.b, x.shape(), mask, 1)};
  // With a seed: NumPy's generator, whose stream ONNX's reference implementation uses. Without: each node has
  // its own stream, which is the same in each run.
  const bool seeded = c.has_attribute("seed");
  const Term ratio =
      given ? cast(reshape(c.in(1), {}), DType::kF64) : c.number(DType::kF64, c.number("ratio", 0.5));
  std::optional<Term> flag;  // whether this is training is known only at run time
  if (c.version >= 12 && c.has(2) && !known_flag) flag = reshape(c.in(2), {});
  const Dropout y = dropout(
      x, ratio, flag, {.seed = seeded ? c.integer("seed", 0) : int64_t{c.node.index}, .mersenne = seeded});
  return {y.value, cast(y.kept, mask)};
}

Outputs op_affine(Context& c) { return {affine(c.in(0), c.number("alpha", 1), c.number("beta", 0))}; }
Outputs op_scaled_tanh(Context& c) {
  return {scaled_tanh(c.in(0), c.number("alpha", 1), c.number("beta", 1))};
}

constexpr Row kRows[] = {
    {"Abs", unary<OpKind::kAbs>},
    {"Acos", unary<OpKind::kAcos>},
    {"Acosh", unary<OpKind::kAcosh>},
    {"Add", binary<OpKind::kAdd>},
    {"Affine", op_affine},
    {"And", binary<OpKind::kAnd>},
    {"Asin", unary<OpKind::kAsin>},
    {"Asinh", unary<OpKind::kAsinh>},
    {"Atan", unary<OpKind::kAtan>},
    {"Atanh", unary<OpKind::kAtanh>},
    {"BitCast", bit_cast},
    {"BitShift", bit_shift},
    {"BitwiseAnd", binary<OpKind::kBitAnd>},
    {"BitwiseNot", unary<OpKind::kBitNot>},
    {"BitwiseOr", binary<OpKind::kBitOr>},
    {"BitwiseXor", binary<OpKind::kBitXor>},
    {"Cast", op_cast},
    {"CastLike", cast_like},
    {"Ceil", unary<OpKind::kCeil>},
    {"Celu", op_celu},
    {"Clip", op_clip},
    {"Cos", unary<OpKind::kCos>},
    {"Cosh", unary<OpKind::kCosh>},
    {"Div", binary<OpKind::kDiv>},
    {"Dropout", op_dropout},
    {"Elu", op_elu},
    {"Equal", binary<OpKind::kEq>},
    {"Erf", unary<OpKind::kErf>},
    {"Exp", unary<OpKind::kExp>},
    {"Floor", unary<OpKind::kFloor>},
    {"Gelu", op_gelu},
    {"Greater", swapped<OpKind::kLt>},
    {"GreaterOrEqual", swapped<OpKind::kLe>},
    {"HardSigmoid", op_hard_sigmoid},
    {"HardSwish", op_hard_swish},
    {"Identity", identity},
    {"IsInf", is_inf},
    {"IsNaN", unary<OpKind::kIsNan>},
    {"LeakyRelu", op_leaky_relu},
    {"Less", binary<OpKind::kLt>},
    {"LessOrEqual", binary<OpKind::kLe>},
    {"Log", unary<OpKind::kLog>},
    {"Max", variadic<OpKind::kMax>},
    {"Mean", mean},
    {"Min", variadic<OpKind::kMin>},
    {"Mish", op_mish},
    {"Mod", op_mod},
    {"Mul", binary<OpKind::kMul>},
    {"Neg", unary<OpKind::kNeg>},
    {"Not", unary<OpKind::kNot>},
    {"Or", binary<OpKind::kOr>},
    {"PRelu", op_prelu},
    {"Pow", op_pow},
    {"Reciprocal", unary<OpKind::kRcp>},
    {"Relu", op_relu},
    {"Round", unary<OpKind::kRound>},
    {"ScaledTanh", op_scaled_tanh},
    {"Selu", op_selu},
    {"Shrink", op_shrink},
    {"Sigmoid", unary<OpKind::kSigmoid>},
    {"Sign", unary<OpKind::kSign>},
    {"Sin", unary<OpKind::kSin>},
    {"Sinh", unary<OpKind::kSinh>},
    {"Softplus", op_softplus},
    {"Softsign", op_softsign},
    {"Sqrt", unary<OpKind::kSqrt>},
    {"Sub", binary<OpKind::kSub>},
    {"Sum", variadic<OpKind::kAdd>},
    {"Swish", swish},
    {"Tan", unary<OpKind::kTan>},
    {"Tanh", unary<OpKind::kTanh>},
    {"ThresholdedRelu", op_thresholded_relu},
    {"Where", where},
    {"Xor", binary<OpKind::kXor>},
};

}  // namespace

std::span<const Row> pointwise_rows() { return kRows; }

}  // namespace stridec::onnx

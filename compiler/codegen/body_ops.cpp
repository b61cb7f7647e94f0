// Body: constants and scalar operations.
#include <cmath>
#include <numbers>

#include "compiler/base/check.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"

namespace stridec::codegen {
namespace {

using loop::ScalarOp;

// The suffix of the helper sd_<function> for an op that is a function on every target; null for others.
const char* function_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp: return "exp";
    case ScalarOp::kExpm1: return "expm1";
    case ScalarOp::kLog: return "log";
    case ScalarOp::kLog1p: return "log1p";
    case ScalarOp::kSin: return "sin";
    case ScalarOp::kCos: return "cos";
    case ScalarOp::kTan: return "tan";
    case ScalarOp::kAsin: return "asin";
    case ScalarOp::kAcos: return "acos";
    case ScalarOp::kAtan: return "atan";
    case ScalarOp::kSinh: return "sinh";
    case ScalarOp::kCosh: return "cosh";
    case ScalarOp::kTanh: return "tanh";
    case ScalarOp::kAsinh: return "asinh";
    case ScalarOp::kAcosh: return "acosh";
    case ScalarOp::kAtanh: return "atanh";
    case ScalarOp::kErf: return "erf";
    case ScalarOp::kSigmoid: return "sigmoid";
    case ScalarOp::kPow: return "pow";
    case ScalarOp::kAtan2: return "atan2";
    default: return nullptr;
  }
}

// Whether the parenthesis opened before `from` closes at the end of the text.
bool closes_last(const std::string& text, size_t from) {
  int depth = 1;
  for (size_t i = from; i < text.size(); ++i) {
    depth += (text[i] == '(') - (text[i] == ')');
    if (depth == 0) return i + 1 == text.size();
  }
  return false;
}

// Faster variants for results that are rounded to 11 bits or fewer; null if there is none.
const char* coarse_function_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp: return "exp_coarse";
    case ScalarOp::kErf: return "erf_coarse";
    case ScalarOp::kSigmoid: return "sigmoid_coarse";
    default: return nullptr;
  }
}

}  // namespace

std::string Body::literal(const loop::Scalar& scalar) {
  const DType dtype = scalar.dtype;
  if (dtype == DType::kBool) return scalar.i ? "true" : "false";
  if (dtype == DType::kF64) return float_literal(scalar.f, false);
  if (dtype == DType::kF32) return float_literal(static_cast<float>(scalar.f), true);
  if (is_float(dtype)) return float_literal(round_float(dtype, scalar.f), true);
  if (dtype == DType::kU64) return cat(static_cast<uint64_t>(scalar.i), "ul");
  if (dtype == DType::kI64 && scalar.i == INT64_MIN) return "(-9223372036854775807l - 1)";
  if (dtype == DType::kI64) return cat("(", scalar.i, "l)");
  return cat("(", text_.value_type(dtype), ")", scalar.i < 0 ? cat("(", scalar.i, ")") : cat(scalar.i));
}

void Body::define(loop::ValueId id, const std::string& text, int width) {
  const DType dtype = nest_.values[id.value].dtype;
  // A value decoded from storage bits keeps those bits, so that stores and casts to the same dtype reuse
  // them.
  const std::string from = is_storage_float(dtype) ? cat("sd_from_", stridec::name(dtype), "(") : "";
  if (text_.is_cuda() && !from.empty() && text.starts_with(from) && closes_last(text, from.size())) {
    const std::string bits = text_.fresh("h"), value = text_.fresh("v");
    text_.line(cat("const ", text_.storage_type(dtype), " ", bits, " = ",
                   text.substr(from.size(), text.size() - from.size() - 1), ";"));
    text_.line(cat("const f32 ", value, " = ", from, bits, ");"));
    return set_value(id, {value, dtype, 1, false, bits});
  }
  const std::string name = text_.fresh("v");
  text_.line(cat("const ", text_.value_type(dtype, width), " ", name, " = ", text, ";"));
  set_value(id, {name, dtype, width});
}

std::string Body::widened(const CValue& value, int width) {
  if (value.width == width) return value.text;
  STRIDEC_CHECK(value.width == 1);
  return cat("(", text_.value_type(value.dtype, width), ")(", value.text, ")");
}

void Body::print_constant(const loop::Constant& constant) {
  // Constants are pasted as literals, for constant folding by the compiler and for readability.
  const DType dtype = nest_.values[constant.result.value].dtype;
  CValue value = {literal(constant.value), dtype, 1, !std::isnan(constant.value.f)};
  value.whole = is_float(dtype) && std::trunc(constant.value.f) == constant.value.f;
  if (is_float(dtype)) numbers_[constant.result] = constant.value.f;
  if (is_storage_float(dtype))
    value.stored = cat("(", text_.storage_type(dtype), ")", encode_float(dtype, constant.value.f), "u");
  set_value(constant.result, std::move(value));
}

// ---- operations

// Prints conversions between floats and quantised integers. An integer-valued float that was clamped to the
// byte range is kept as a float too, so that converting back costs nothing. Returns true if nothing is left
// to print.
bool Body::print_quantized(const loop::Let& let, int width) {
  if (let.op != ScalarOp::kCast && let.op != ScalarOp::kCastSat) return false;
  const CValue from = value(let.args[0]);
  const DType to = nest_.values[let.result.value].dtype;
  if (to == DType::kF32 && !from.as_f32.empty()) {
    CValue result = {.text = from.as_f32, .dtype = to, .width = from.width, .whole = true};
    result.unrounded = from.unrounded, result.shift = from.shift, result.clamped = from.clamped;
    set_value(let.result, std::move(result));
    return true;
  }
  if (let.op == ScalarOp::kCast || from.dtype != DType::kF32 || !from.whole || !is_integer(to) ||
      info(to).bits < 8 || info(to).bits > 16)
    return false;
  // With integer bounds clamping and rounding commute, so the conversion instruction rounds.
  if (!from.unrounded.empty() && !nearest_text("", width).empty()) {
    const std::string inside = clamped(from.unrounded, from.dtype, to, width, from.shift);
    const auto shifted = [&](const std::string& x, const std::string& shift) {
      return from.shift == 0 ? x : cat("(", x, " + ", shift, ")");
    };
    const std::string whole =
        shifted(cat("(", nearest_text(inside, width), ")"), cat(static_cast<int64_t>(from.shift)));
    if (to == DType::kU8 && text_.target().avx512 && width == 16) {
      // A value above the i32 range converts to 2^31, which the narrowing instruction saturates as an
      // unsigned number, like any value above the byte range.
      const std::string most = clamped(from.unrounded, from.dtype, to, width, from.shift, false);
      define(let.result,
             cat("(", text_.value_type(to, width), ")__builtin_ia32_pmovusdb512_mask(",
                 shifted(nearest_text(most, width), cat(static_cast<int64_t>(from.shift))), ", (",
                 text_.value_type(DType::kI8, width), ")0, (unsigned short)-1)"),
             width);
    } else {
      define(let.result, cast_text(whole, DType::kI32, to, width, false), width);
    }
    CValue result = value(let.result);
    result.as_f32 =
        shifted(cat("__builtin_elementwise_roundeven(", inside, ")"), float_literal(from.shift, true));
    // -0 becomes 0
    if (is_signed(to) && from.shift == 0) result.as_f32 = cat("(", result.as_f32, " + 0.0f)");
    if (from.shift != 0) result.unrounded = inside, result.shift = from.shift, result.clamped = true;
    set_value(let.result, std::move(result));
    return true;
  }
  const std::string inside = clamped(widened(from, width), from.dtype, to, width);
  define(let.result, cast_text(inside, from.dtype, to, width, false), width);
  CValue result = value(let.result);
  result.as_f32 = is_signed(to) ? cat("(", inside, " + 0.0f)") : inside;  // -0 becomes 0
  set_value(let.result, std::move(result));
  return true;
}

void Body::print_let(const loop::Let& let) {
  int width = 1;
  for (loop::ValueId arg : let.args) width = std::max(width, value(arg).width);
  if (print_quantized(let, width)) return;
  if (let.op == ScalarOp::kErf || let.op == ScalarOp::kTanh || let.op == ScalarOp::kMul ||
      let.op == ScalarOp::kDiv)
    made_by_[let.result] = &let;
  const std::string native = native_text(let);
  define(let.result, native.empty() ? let_text(let, width) : native, width);
  const bool rounds = let.op == ScalarOp::kRound || let.op == ScalarOp::kFloor || let.op == ScalarOp::kCeil ||
                      let.op == ScalarOp::kTrunc;
  if (rounds || ((let.op == ScalarOp::kAdd || let.op == ScalarOp::kSub) && value(let.args[0]).whole &&
                 value(let.args[1]).whole)) {
    CValue result = value(let.result);
    result.whole = is_float(result.dtype);
    if (result.dtype == DType::kF32 && width > 1) find_unrounded(let, width, result);
    set_value(let.result, std::move(result));
  }
}

void Body::find_unrounded(const loop::Let& let, int width, CValue& result) {
  if (let.op == ScalarOp::kRound) result.unrounded = widened(value(let.args[0]), width);
  const double sign = let.op == ScalarOp::kSub ? -1 : 1;
  if (let.op != ScalarOp::kAdd && let.op != ScalarOp::kSub) return;
  for (const size_t at : {0, 1}) {
    constexpr double kMost = 1 << 20;  // bounds and shifts must be exact in f32
    const CValue& of = value(let.args[at]);
    const auto number = numbers_.find(let.args[1 - at]);
    if (of.unrounded.empty() || (of.shift != 0 && !of.clamped) || number == numbers_.end() ||
        (sign < 0 && at == 1))
      continue;
    const double shift = of.shift + sign * number->second;
    if (std::fabs(number->second) > kMost || std::fabs(shift) > kMost || std::trunc(shift) != shift) continue;
    result.unrounded = of.unrounded, result.shift = shift, result.clamped = of.clamped;
  }
}

// Additions, subtractions and multiplications in storage floats that the GPU supports natively; "": none.
// They equal f32 operations followed by rounding: f32's 24 bits are at least twice theirs plus 2, so
// rounding twice does no harm.
std::string Body::native_text(const loop::Let& let) {
  const DType dtype = nest_.values[let.result.value].dtype;
  const char* op = let.op == ScalarOp::kAdd   ? "add"
                   : let.op == ScalarOp::kSub ? "sub"
                   : let.op == ScalarOp::kMul ? "mul"
                                              : nullptr;
  if (!op || !text_.is_cuda() || wide_floats || (dtype != DType::kF16 && dtype != DType::kBF16)) return "";
  const CValue &a = value(let.args[0]), &b = value(let.args[1]);
  if (a.stored.empty() || b.stored.empty()) return "";
  text_.use(cat("from.", name(dtype)));
  text_.use(cat(op, ".", name(dtype)));
  return cat("sd_from_", name(dtype), "(sd_", op, "_", name(dtype), "(", a.stored, ", ", b.stored, "))");
}

// The function for a result that is rounded to 11 bits or fewer, if there is a faster one. Also matches 1 +
// erf(x), 1 + tanh(x) and the corresponding differences as a whole: they cancel, so their operands have no
// slack.
std::optional<Body::Call> Body::coarse_call(const loop::Let& let) const {
  if (slack_[let.result.value] != Slack::kCoarse) return std::nullopt;
  if (const char* function = coarse_function_of(let.op)) return Call{function, let.args};
  if (let.op != ScalarOp::kAdd && let.op != ScalarOp::kSub) return std::nullopt;
  for (const size_t at : {0, 1}) {
    if (let.op == ScalarOp::kSub && at == 0) continue;
    const auto odd = made_by_.find(let.args[at]);
    const auto one = numbers_.find(let.args[1 - at]);
    if (odd == made_by_.end() || one == numbers_.end() || one->second != 1) continue;
    if (odd->second->op != ScalarOp::kErf && odd->second->op != ScalarOp::kTanh) continue;
    return Call{odd->second->op == ScalarOp::kErf ? "one_erf_coarse" : "one_tanh_coarse", odd->second->args,
                let.op == ScalarOp::kSub};
  }
  return std::nullopt;
}

// Matches 1 - erf(-x / sqrt(2)), which is twice the standard normal CDF of x: returns x, or -x without its
// minus sign; "" if there is no match. Evaluated as written, the difference cancels for negative x, where a
// small error of the quotient becomes a large relative error.
std::string Body::normal_argument(const loop::Let& let, int width) {
  const DType dtype = nest_.values[let.result.value].dtype;
  if (let.op != ScalarOp::kSub || !is_float(dtype) || is_storage_float(dtype)) return "";
  const auto made = [&](loop::ValueId id) -> const loop::Let* {
    const auto found = made_by_.find(id);
    return found == made_by_.end() ? nullptr : found->second;
  };
  const auto number = [&](loop::ValueId id) {
    const auto found = numbers_.find(id);
    return found == numbers_.end() ? 0 : found->second;
  };
  const loop::Let* erf = made(let.args[1]);
  if (number(let.args[0]) != 1 || !erf || erf->op != ScalarOp::kErf) return "";
  const loop::Let* scaled = made(erf->args[0]);
  if (!scaled || (scaled->op != ScalarOp::kMul && scaled->op != ScalarOp::kDiv)) return "";
  const double by = number(scaled->args[1]), factor = scaled->op == ScalarOp::kMul ? by : 1 / by;
  const double near = dtype == DType::kF32 ? 0x1p-22 : 0x1p-51;
  if (!(std::fabs(std::fabs(factor) * std::numbers::sqrt2 - 1) < near)) return "";
  return cat(factor < 0 ? "" : "-", widened(value(scaled->args[0]), width));
}

// Replaces the operands of a comparison of i64 by i32 vectors if one of them is known to fit and the other
// fits too or is uniform: twice as many i32 fit in a register. A uniform value beyond i32 becomes its least
// or largest value, which compares alike with everything between them.
void Body::narrow_comparands(const loop::Let& let, std::string& a, std::string& b) {
  const CValue &x = value(let.args[0]), &y = value(let.args[1]);
  if (x.dtype != DType::kI64 || (x.as_i32.empty() && y.as_i32.empty())) return;
  const auto narrow = [&](const CValue& of) -> std::string {
    if (!of.as_i32.empty()) return of.as_i32;
    if (of.width != 1) return "";
    return cat("(", text_.value_type(DType::kI32, width_), ")(i32)(", of.text,
               " < -2147483647l ? -2147483647l - 1 : ", of.text, " > 2147483647l ? 2147483647l : ", of.text,
               ")");
  };
  const std::string narrow_a = narrow(x), narrow_b = narrow(y);
  if (!narrow_a.empty() && !narrow_b.empty()) a = narrow_a, b = narrow_b;
}

// The text of one scalar operation.
class Body::Operation {
 public:
  Operation(Body& body, const loop::Let& let, int width)
      : body_(body),
        text_(body.text_),
        let_(let),
        width_(width),
        result_(body.nest_.values[let.result.value].dtype),
        dtype_(body.nest_.values[let.args.back().value].dtype),
        type_(text_.value_type(dtype_, width)) {
    for (loop::ValueId arg : let.args) args_.push_back(body.widened(body.value(arg), width));
  }

  std::string text() {
    if (const auto relaxed = relaxed_text()) return *relaxed;
    if (const std::string x = body_.normal_argument(let_, width_); !x.empty()) {
      text_.use(cat("normal_cdf.", text_.value_type(dtype_)), width_);
      return cat("2 * sd_normal_cdf(", x, ")");
    }
    if (const char* function = function_of(let_.op)) return call(function, function);
    if (let_.args.size() == 1) return unary();
    return let_.args.size() == 2 ? binary() : ternary();
  }

 private:
  const std::string& a() const { return args_[0]; }
  const std::string& b() const { return args_[1]; }
  bool is_vector() const { return width_ > 1; }
  bool is_floating() const { return is_float(dtype_); }
  bool is_boolean() const { return is_bool(dtype_); }
  std::string constant(const char* value) const { return cat("(", type_, ")", value); }
  std::string negated(const std::string& x) const { return cat(is_vector() ? "~" : "!", x); }

  // Rounds or wraps to the result's dtype.
  std::string finish(const std::string& x) {
    if (is_storage_float(result_)) return body_.rounded(x, result_, width_);
    if (is_narrow(result_)) {
      const int bits = info(result_).bits;
      return is_signed(result_)
                 ? cat("((", type_, ")((", type_, ")((", x, ") << ", 8 - bits, ") >> ", 8 - bits, "))")
                 : cat("((", type_, ")((", x, ") & (", type_, ")", (1 << bits) - 1, "))");
    }
    return is_vector() || is_floating() || is_boolean() ? x : cat("(", type_, ")(", x, ")");
  }

  // Signed arithmetic wraps: it is computed in the unsigned type.
  std::string wrapping(const std::string& x, const char* op, const std::string& y) {
    if (is_floating() || !is_signed(dtype_)) return finish(cat(x, " ", op, " ", y));
    const std::string u = cat("u", text_.value_type(dtype_).substr(1));
    const std::string uv = is_vector() ? cat(u, "x", width_) : u;
    text_.value_type(*parse_dtype(u), width_);
    return finish(cat("(", type_, ")((", uv, ")(", x, ") ", op, " (", uv, ")(", y, "))"));
  }

  // A comparison, as bools.
  std::string test(const std::string& x, const char* op, const std::string& y) {
    const std::string compared = cat(x, " ", op, " ", y);
    return is_vector()
               ? cat("__builtin_convertvector(", compared, ", ", text_.value_type(DType::kBool, width_), ")")
               : cat("(", compared, ")");
  }
  std::string never() {
    return is_vector() ? cat("(", text_.value_type(DType::kBool, width_), ")(false)") : "false";
  }

  std::string elementwise(const char* name) {
    return finish(cat("__builtin_elementwise_", name, "(", a(), ")"));
  }
  std::string rounding(const char* name) { return is_floating() ? elementwise(name) : a(); }
  std::string call(const char* snippet, const char* function) {
    text_.use(cat(snippet, ".", text_.value_type(dtype_)), width_);
    return finish(cat("sd_", function, "(", join(args_, ", "), ")"));
  }

  // A faster form for a result that may be less exact; nothing if there is none.
  std::optional<std::string> relaxed_text() {
    if (body_.slack_[let_.result.value] == Slack::kNone || text_.value_type(dtype_) != "f32") return {};
    if (let_.op == ScalarOp::kDiv) {
      if (const auto by = body_.numbers_.find(let_.args[1]); by != body_.numbers_.end())
        if (const auto factor = static_cast<float>(1 / by->second); std::isnormal(factor))
          return finish(cat(a(), " * ", float_literal(factor, true)));
      // Division by a value that is uniform across lanes, such as a row's sum: multiply by its reciprocal,
      // which is hoisted out of the loop.
      if (!text_.is_cuda() && is_vector() && body_.value(let_.args[1]).width == 1)
        return finish(cat(a(), " * (", type_, ")(1.0f / ", body_.value(let_.args[1]).text, ")"));
      if (text_.is_cuda()) return call("quotient", "quotient");
    }
    const auto coarse = text_.is_cuda() ? body_.coarse_call(let_) : std::nullopt;
    if (!coarse) return {};
    args_.clear();
    for (loop::ValueId arg : coarse->args)
      args_.push_back(cat(coarse->negated ? "-" : "", body_.widened(body_.value(arg), width_)));
    return call(coarse->function, coarse->function);
  }

  std::string unary() {
    switch (let_.op) {
      case ScalarOp::kNeg: return is_floating() ? finish(cat("-", a())) : wrapping(constant("0"), "-", a());
      case ScalarOp::kAbs: return !is_floating() && !is_signed(dtype_) ? a() : elementwise("abs");
      case ScalarOp::kSign: return sign();
      case ScalarOp::kFloor: return rounding("floor");
      case ScalarOp::kCeil: return rounding("ceil");
      case ScalarOp::kTrunc: return rounding("trunc");
      case ScalarOp::kRound: return rounding("roundeven");
      case ScalarOp::kSqrt: return elementwise("sqrt");
      case ScalarOp::kRsqrt: return finish(cat(constant("1"), " / __builtin_elementwise_sqrt(", a(), ")"));
      case ScalarOp::kRcp: return finish(cat(constant("1"), " / ", a()));
      case ScalarOp::kNot: return negated(a());
      case ScalarOp::kBitNot: return is_boolean() ? negated(a()) : finish(cat("~", a()));
      case ScalarOp::kIsNan: return is_floating() ? test(a(), "!=", a()) : never();
      case ScalarOp::kIsInf: return is_floating() ? is_infinite() : never();
      case ScalarOp::kCast: return body_.cast_text(a(), dtype_, result_, width_, false);
      case ScalarOp::kCastSat: return body_.cast_text(a(), dtype_, result_, width_, true);
      case ScalarOp::kBitcast: return bitcast();
      default: unknown();
    }
  }

  std::string binary() {
    switch (let_.op) {
      case ScalarOp::kAdd: return is_boolean() ? cat(a(), " | ", b()) : wrapping(a(), "+", b());
      case ScalarOp::kSub: return is_boolean() ? cat(a(), " ^ ", b()) : wrapping(a(), "-", b());
      case ScalarOp::kMul:
        if (is_floating() && !is_storage_float(result_) && text_.target().fma &&
            !body_.summed_[let_.result.value])
          return call("product", "product");
        return is_boolean() ? cat(a(), " & ", b()) : wrapping(a(), "*", b());
      case ScalarOp::kDiv: return is_floating() ? finish(cat(a(), " / ", b())) : call("div", "idiv");
      case ScalarOp::kMod: return call("mod", is_floating() ? "fmod" : "imod");
      case ScalarOp::kRem: return call("rem", is_floating() ? "frem" : "irem");
      case ScalarOp::kMin:
      case ScalarOp::kMax: return extremum();
      case ScalarOp::kAnd:
      case ScalarOp::kBitAnd: return bitwise("&");
      case ScalarOp::kOr:
      case ScalarOp::kBitOr: return bitwise("|");
      case ScalarOp::kXor:
      case ScalarOp::kBitXor: return bitwise("^");
      case ScalarOp::kShl: return shifted(call("shl", "shl"));
      case ScalarOp::kShr: return shifted(call("shr", "shr"));
      case ScalarOp::kEq:
      case ScalarOp::kNe:
      case ScalarOp::kLt:
      case ScalarOp::kLe: return comparison();
      default: unknown();
    }
  }

  std::string ternary() {
    if (let_.op == ScalarOp::kSelect) return select();
    if (let_.op == ScalarOp::kFma) return fma();
    unknown();
  }

  [[noreturn]] void unknown() const {
    STRIDEC_CHECK(false, cat("op ", loop::info(let_.op).name, " is not known to the backends"));
  }

  std::string sign() {
    const auto otherwise = [&](const std::string& x) {
      return cat("(", a(), " > ", constant("0"), ") ? ", constant("1"), " : ", x);
    };
    if (!is_floating() && !is_signed(dtype_)) return otherwise(constant("0"));
    const std::string zero = is_floating() ? cat(a(), " + ", constant("0")) : constant("0");  // NaN; 0 of -0
    return otherwise(cat("((", a(), " < ", constant("0"), ") ? ", constant("-1"), " : ", zero, ")"));
  }

  std::string is_infinite() {
    return test(cat("__builtin_elementwise_abs(", a(), ")"),
                "==", constant(dtype_ == DType::kF64 ? "__builtin_inf()" : "__builtin_inff()"));
  }

  std::string bitcast() {
    if (dtype_ == result_) return a();
    const std::string bits = body_.to_storage(a(), dtype_, width_), to = text_.storage_type(result_, width_);
    return body_.from_storage(cat("__builtin_bit_cast(", to, ", ", bits, ")"), result_, width_);
  }

  std::string bitwise(const char* op) {
    const std::string x = cat(a(), " ", op, " ", b());
    return is_boolean() ? x : finish(x);
  }

  std::string extremum() {
    const bool min = let_.op == ScalarOp::kMin;
    const char* wins = min ? " < " : " > ";
    if (is_boolean()) return cat(a(), min ? " & " : " | ", b());
    if (!is_floating()) return cat("(", a(), wins, b(), ") ? ", a(), " : ", b());
    // If one operand is a literal only the other can be NaN. The machine's instruction returns its second
    // operand if either is NaN.
    for (const bool first : {false, true}) {
      if (!body_.value(let_.args[first ? 0 : 1]).number) continue;
      const std::string &literal = first ? a() : b(), &other = first ? b() : a();
      return finish(cat("(", literal, wins, other, ") ? ", literal, " : ", other));
    }
    text_.use(cat(min ? "min." : "max.", text_.value_type(dtype_)), width_);
    return cat(min ? "sd_fmin(" : "sd_fmax(", a(), ", ", b(), ")");
  }

  // Bits that are shifted beyond a narrow type are lost.
  std::string shifted(const std::string& x) {
    if (!is_narrow(dtype_)) return x;
    const std::string u = text_.value_type(DType::kU8, width_);
    return cat("((", u, ")", b(), " < (", u, ")", info(dtype_).bits, ") ? ", x, " : ", constant("0"));
  }

  std::string comparison() {
    const bool eq = let_.op == ScalarOp::kEq, ne = let_.op == ScalarOp::kNe, lt = let_.op == ScalarOp::kLt;
    if (is_boolean() && is_vector())
      return eq   ? cat("~(", a(), " ^ ", b(), ")")
             : ne ? cat(a(), " ^ ", b())
                  : cat("~", a(), lt ? " & " : " | ", b());
    if (is_vector()) body_.narrow_comparands(let_, args_[0], args_[1]);
    return test(a(), eq ? "==" : ne ? "!=" : lt ? "<" : "<=", b());
  }

  std::string select() {
    const CValue condition = body_.value(let_.args[0]);
    if (condition.width == 1) return cat(condition.text, " ? ", b(), " : ", args_[2]);
    text_.use(cat("select.", text_.value_type(dtype_)), width_);
    return cat("sd_select(", a(), ", ", b(), ", ", args_[2], ")");
  }

  std::string fma() {
    if (const CValue x = body_.value(let_.args[0]); x.clamped && x.shift == 0) {
      // Subtracting the shift that was added restores the value except for the sign of 0, which does not
      // matter when adding a constant other than -0.
      const auto beside = body_.numbers_.find(let_.args[2]);
      if (beside != body_.numbers_.end() && !(beside->second == 0 && std::signbit(beside->second)))
        args_[0] = cat("__builtin_elementwise_roundeven(", x.unrounded, ")");
    }
    if (is_floating()) return call("fma", "fma");
    return wrapping(wrapping(a(), "*", b()), "+", args_[2]);
  }

  Body& body_;
  KernelText& text_;
  const loop::Let& let_;
  const int width_;
  const DType result_, dtype_;  // dtype_: of the operands
  const std::string type_;      // of the operands, in C
  std::vector<std::string> args_;
};

std::string Body::let_text(const loop::Let& let, int width) { return Operation(*this, let, width).text(); }

}  // namespace stridec::codegen

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compiler/base/text.h"
#include "compiler/extend/c_value.h"
#include "compiler/ops/helpers.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::OpKind;
using ops::Term;

struct CType {
  std::string_view name;
  DType dtype;
};
constexpr CType kTypes[] = {{"bool", DType::kBool},    {"_Bool", DType::kBool},   {"char", DType::kI8},
                            {"short", DType::kI16},    {"int", DType::kI32},      {"long", DType::kI64},
                            {"float", DType::kF32},    {"double", DType::kF64},   {"int8_t", DType::kI8},
                            {"int16_t", DType::kI16},  {"int32_t", DType::kI32},  {"int64_t", DType::kI64},
                            {"uint8_t", DType::kU8},   {"uint16_t", DType::kU16}, {"uint32_t", DType::kU32},
                            {"uint64_t", DType::kU64}, {"size_t", DType::kU64},   {"_Float16", DType::kF16},
                            {"half", DType::kF16},     {"bfloat16", DType::kBF16}};

struct Function {
  std::string_view name;
  OpKind kind;
  int args = 1;
};
// Of <math.h>, for the type of their operands; the suffix f is left out.
constexpr Function kFunctions[] = {
    {"exp", OpKind::kExp},     {"expm1", OpKind::kExpm1}, {"log", OpKind::kLog},
    {"log1p", OpKind::kLog1p}, {"sqrt", OpKind::kSqrt},   {"rsqrt", OpKind::kRsqrt},
    {"sin", OpKind::kSin},     {"cos", OpKind::kCos},     {"tan", OpKind::kTan},
    {"asin", OpKind::kAsin},   {"acos", OpKind::kAcos},   {"atan", OpKind::kAtan},
    {"sinh", OpKind::kSinh},   {"cosh", OpKind::kCosh},   {"tanh", OpKind::kTanh},
    {"asinh", OpKind::kAsinh}, {"acosh", OpKind::kAcosh}, {"atanh", OpKind::kAtanh},
    {"erf", OpKind::kErf},     {"floor", OpKind::kFloor}, {"ceil", OpKind::kCeil},
    {"trunc", OpKind::kTrunc}, {"rint", OpKind::kRound},  {"nearbyint", OpKind::kRound},
    {"fabs", OpKind::kAbs},    {"pow", OpKind::kPow, 2},  {"atan2", OpKind::kAtan2, 2},
    {"fmod", OpKind::kRem, 2}, {"fma", OpKind::kFma, 3}};

bool is_narrow(DType dtype) { return is_bool(dtype) || (!is_float(dtype) && info(dtype).bits < 32); }

class Library {
 public:
  Library(Builder& builder, const CExpression& call, std::vector<CValue> args,
          const std::function<void(const std::string& what)>& refuse)
      : b_(builder), name_(call.name), args_(std::move(args)), refuse_(refuse) {}

  CValue call() {
    if (name_ == "__float_as_int" || name_ == "__int_as_float" || name_ == "__float_as_uint" ||
        name_ == "__uint_as_float") {
      takes(1);
      const bool to_float = name_.ends_with("as_float");
      const DType integer = name_.find("uint") != std::string::npos ? DType::kU32 : DType::kI32;
      const Term from = converted(args_[0].term, to_float ? integer : DType::kF32);
      return {Term(b_, b_.add1(OpKind::kBitcast, {from.id()}, {{"to", to_float ? DType::kF32 : integer}})),
              false};
    }
    if (name_ == "isnan" || name_ == "isinf" || name_ == "isfinite") {
      takes(1);
      const Term x = real(args_[0]).term;
      const Term nan = ops::apply(OpKind::kIsNan, x), infinite = ops::apply(OpKind::kIsInf, x);
      return {name_ == "isnan"   ? nan
              : name_ == "isinf" ? infinite
                                 : ops::logical_not(ops::logical_or(nan, infinite)),
              false};
    }
    if (name_ == "abs" || name_ == "labs") {
      takes(1);
      return {ops::abs(converted(args_[0].term, promoted(args_[0].term.dtype()))), args_[0].weak};
    }
    if (name_ == "min" || name_ == "max") {
      takes(2);
      const DType dtype = common_type(args_[0], args_[1]);
      const Term x = converted(args_[0].term, dtype), y = converted(args_[1].term, dtype);
      return {name_ == "min" ? ops::minimum(x, y) : ops::maximum(x, y), false};
    }
    return math();
  }

 private:
  void takes(size_t count) const {
    if (args_.size() != count)
      refuse_(cat("'", name_, "' takes ", count, count == 1 ? " argument" : " arguments"));
  }

  CValue real(const CValue& of) const {
    if (is_float(of.term.dtype())) return {converted(of.term, promoted(of.term.dtype())), of.weak};
    return {converted(of.term, DType::kF64), true};
  }

  CValue math() {
    std::string name = name_;
    bool single = false;
    const auto row = [&] { return std::ranges::find(kFunctions, name, &Function::name); };
    static constexpr std::string_view kOthers[] = {"fmin", "fmax", "round", "exp2", "log2", "log10"};
    const auto known = [&] { return row() != std::end(kFunctions) || std::ranges::count(kOthers, name) > 0; };
    if (!known() && name.ends_with('f')) {
      name.pop_back();
      single = true;
    }
    if (!known()) refuse_(cat("there is no function '", name_, "'"));
    const bool two = name == "fmin" || name == "fmax";
    takes(row() != std::end(kFunctions) ? static_cast<size_t>(row()->args) : two ? 2 : 1);
    // The type of all operands: of the function, or that of the widest.
    CValue widest = real(args_[0]);
    for (CValue& arg : args_) {
      arg = real(arg);
      const DType dtype = common_type(widest, arg);
      widest = {converted(widest.term, dtype), widest.weak && arg.weak};
    }
    const DType dtype = single ? DType::kF32 : widest.term.dtype();
    std::vector<Term> x;
    for (const CValue& arg : args_) x.push_back(converted(arg.term, dtype));
    const bool weak = widest.weak && !single;
    if (row() != std::end(kFunctions)) {
      std::vector<graph::ValueId> ids;
      for (const Term& each : x) ids.push_back(each.id());
      return {Term(b_, b_.add1(row()->kind, ids)), weak};
    }
    if (two) {  // the other one, if one is not a number
      const Term least = name == "fmin" ? ops::minimum(x[0], x[1]) : ops::maximum(x[0], x[1]);
      const Term first = ops::select(ops::apply(OpKind::kIsNan, x[1]), x[0], least);
      return {ops::select(ops::apply(OpKind::kIsNan, x[0]), x[1], first), weak};
    }
    if (name == "exp2") return {ops::pow(ops::number(b_, dtype, 2), x[0]), weak};
    if (name == "log2") return {ops::log(x[0]) * std::numbers::log2e, weak};
    if (name == "log10") return {ops::log(x[0]) * std::numbers::log10e, weak};
    const Term whole = ops::apply(OpKind::kTrunc, x[0]);  // round: halves away from zero
    const Term away = ops::greater_equal(ops::abs(x[0] - whole), 0.5);
    return {ops::select(away, whole + ops::apply(OpKind::kSign, x[0]), whole), weak};
  }

  Builder& b_;
  const std::string& name_;
  std::vector<CValue> args_;
  const std::function<void(const std::string& what)>& refuse_;
};

}  // namespace

std::optional<DType> c_dtype(std::string_view name) {
  const auto known = std::ranges::find(kTypes, name, &CType::name);
  return known == std::end(kTypes) ? std::nullopt : std::optional(known->dtype);
}

std::optional<double> c_constant(std::string_view name) {
  static constexpr std::pair<std::string_view, double> kConstants[] = {
      {"INFINITY", INFINITY},
      {"NAN", NAN},
      {"M_PI", std::numbers::pi},
      {"M_E", std::numbers::e},
      {"M_SQRT2", std::numbers::sqrt2},
      {"M_LN2", std::numbers::ln2},
      {"M_SQRT1_2", 0.70710678118654752440},
      {"M_2_SQRTPI", 1.12837916709551257390}};
  for (const auto& [known, number] : kConstants)
    if (known == name) return number;
  return std::nullopt;
}

DType literal_type(const CExpression& integer) {
  const bool is_unsigned = integer.suffix.find('u') != std::string::npos;
  const bool wide = integer.suffix.find('l') != std::string::npos;
  const auto value = static_cast<uint64_t>(integer.integer);
  if (!wide && !is_unsigned && value <= INT32_MAX) return DType::kI32;
  if (!wide && (is_unsigned || integer.base != 10) && value <= UINT32_MAX) return DType::kU32;
  return !is_unsigned && value <= INT64_MAX ? DType::kI64 : DType::kU64;
}

DType promoted(DType dtype) {
  if (is_storage_float(dtype)) return DType::kF32;
  return is_narrow(dtype) ? DType::kI32 : dtype;
}

DType common_type(const CValue& a, const CValue& b) {
  const DType x = promoted(a.term.dtype()), y = promoted(b.term.dtype());
  if (is_float(x) || is_float(y)) {
    if (is_float(x) && is_float(y) && a.weak != b.weak) return a.weak ? y : x;
    if (!is_float(x)) return y;
    if (!is_float(y)) return x;
    return x == DType::kF64 || y == DType::kF64 ? DType::kF64 : DType::kF32;
  }
  if (info(x).bits != info(y).bits) return info(x).bits > info(y).bits ? x : y;
  return is_signed(x) ? y : x;
}

bool are_weak(const CValue& a, const CValue& b) {
  const auto undecided = [](const CValue& v) { return v.weak || !is_float(v.term.dtype()); };
  return undecided(a) && undecided(b) && (is_float(a.term.dtype()) || is_float(b.term.dtype()));
}

ops::Term converted(ops::Term value, DType to) {
  if (value.dtype() == to) return value;
  if (is_bool(to)) return truth(value);
  return ops::cast(value, to, false);
}

ops::Term truth(ops::Term value) {
  if (is_bool(value.dtype())) return value;
  return ops::logical_not(ops::equal(value, 0.0));
}

CValue call_c_library(Builder& builder, const CExpression& call, std::vector<CValue> args,
                      const std::function<void(const std::string& what)>& refuse) {
  return Library(builder, call, std::move(args), refuse).call();
}

}  // namespace stridec::extend

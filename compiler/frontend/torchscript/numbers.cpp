// Arithmetic and comparisons of Python's numbers: computed where they are known, expressions over sizes, or
// f64 scalars of the run.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"
#include "compiler/frontend/torchscript/builtins.h"
#include "compiler/frontend/torchscript/convert.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using ops::Term;

std::optional<double> constant(const Call& c, const Value& v) {
  if (v.is(VK::kFloat)) return v.number;
  if (!v.is_whole()) return std::nullopt;
  const sym::Expr known = c.e.b.simplify(v.integer);
  return known.is_const() ? std::optional(static_cast<double>(known.value())) : std::nullopt;
}
Value run_float(Term t) {
  Value out(aten::fresh(t));
  out.tensor.wrapped = true;
  return out;
}
Term term(const Call& c, const Value& v) { return aten::scalar_of(c.e.b, to_aten(c.e.b, v), DType::kF64); }

[[noreturn]] void by_zero() { throw Raised{"division by zero"}; }

sym::Expr power(sym::Expr base, sym::Expr exponent) {
  constexpr int64_t kLargest = 62;
  if (!exponent.is_const() || exponent.value() < 0 || exponent.value() > kLargest)
    Evaluator::unsupported("a power of sizes with an exponent that is not a small constant");
  sym::Expr out = 1;
  for (int64_t i = 0; i < exponent.value(); ++i) out = out * base;
  return out;
}

// ---- two integers
std::optional<Value> on_integers(const Call& c, const Value& a, const Value& b) {
  const sym::Expr x = a.integer, y = b.integer;
  const std::string& f = c.name;
  const auto whole = [](sym::Expr e) { return Value::of_integer(e); };
  if (f == "add") return whole(x + y);
  if (f == "sub") return whole(x - y);
  if (f == "mul") return whole(x * y);
  if (f == "floordiv" || f == "remainder") {
    if (y.is_const(0)) by_zero();
    return whole(f == "floordiv" ? sym::floordiv(x, y) : sym::mod(x, y));
  }
  if (f == "__lshift__") return whole(x * power(2, y));
  if (f == "__rshift__") return whole(sym::floordiv(x, power(2, y)));
  if (f == "lt") return Value::of_bool(sym::lt(x, y));
  if (f == "le") return Value::of_bool(sym::le(x, y));
  if (f == "gt") return Value::of_bool(sym::gt(x, y));
  if (f == "ge") return Value::of_bool(sym::ge(x, y));
  const bool bools = a.is(VK::kBool) && b.is(VK::kBool);
  if (bools && f == "__and__") return Value::of_bool(sym::logical_and(x, y));
  if (bools && f == "__or__") return Value::of_bool(sym::logical_or(x, y));
  if (bools && f == "__xor__") return Value::of_bool(sym::ne(x, y));
  if (!bools && f.starts_with("__") && x.is_const() && y.is_const()) {
    const int64_t m = x.value(), n = y.value();
    if (f == "__and__") return whole(m & n);
    if (f == "__or__") return whole(m | n);
    if (f == "__xor__") return whole(m ^ n);
  }
  return std::nullopt;
}

double python_mod(double x, double y) {
  const double r = std::fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// ---- two floats
std::optional<Value> on_constants(const Call& c, double x, double y) {
  const std::string& f = c.name;
  const auto real = [](double n) { return Value::of_float(n); };
  if (f == "add") return real(x + y);
  if (f == "sub") return real(x - y);
  if (f == "mul") return real(x * y);
  if (f == "div" || f == "floordiv" || f == "remainder") {
    if (y == 0) by_zero();
    return real(f == "div" ? x / y : f == "floordiv" ? std::floor(x / y) : python_mod(x, y));
  }
  if (f == "fmod") return real(std::fmod(x, y));
  if (f == "pow") return real(std::pow(x, y));
  if (f == "atan2") return real(std::atan2(x, y));
  if (f == "copysign") return real(std::copysign(x, y));
  if (f == "lt") return Value::of_bool(x < y);
  if (f == "le") return Value::of_bool(x <= y);
  if (f == "gt") return Value::of_bool(x > y);
  if (f == "ge") return Value::of_bool(x >= y);
  return std::nullopt;
}
std::optional<Value> on_run_floats(const Call& c, Term x, Term y) {
  const std::string& f = c.name;
  const auto decided = [&](Term truth) {
    Value v = Value(aten::fresh(truth));
    return Value::of_bool(c.e.condition_of(v));
  };
  if (f == "add") return run_float(x + y);
  if (f == "sub") return run_float(x - y);
  if (f == "mul") return run_float(x * y);
  if (f == "div") return run_float(x / y);
  if (f == "floordiv") return run_float(ops::apply(graph::OpKind::kFloor, x / y));
  if (f == "remainder") return run_float(x - ops::apply(graph::OpKind::kFloor, x / y) * y);
  if (f == "pow") return run_float(ops::apply(graph::OpKind::kPow, x, y));
  if (f == "lt") return decided(ops::less(x, y));
  if (f == "le") return decided(ops::less_equal(x, y));
  if (f == "gt") return decided(ops::greater(x, y));
  if (f == "ge") return decided(ops::greater_equal(x, y));
  if (f == "eq") return decided(ops::equal(x, y));
  if (f == "ne") return decided(ops::logical_not(ops::equal(x, y)));
  return std::nullopt;
}

std::optional<Value> binary(const Call& c) {
  if (c.count() != 2 || !c.at(0).is_number() || !c.at(1).is_number()) return std::nullopt;
  const Value &a = c.at(0), &b = c.at(1);
  const bool whole = a.is_whole() && b.is_whole() && c.name != "div" && c.name != "pow" && c.name != "fmod";
  if (whole) return on_integers(c, a, b);
  const auto x = constant(c, a), y = constant(c, b);
  if (x && y) return on_constants(c, *x, *y);
  if (a.is(VK::kComplex) || b.is(VK::kComplex)) return std::nullopt;
  return on_run_floats(c, term(c, a), term(c, b));
}

// ---- one number
std::optional<Value> rounded(const Call& c, double (*round)(double), graph::OpKind kind) {
  const Value& v = c.at(0);
  if (v.is_whole()) return Value::of_integer(v.integer);
  if (v.is(VK::kFloat)) {
    const double n = round(v.number);
    if (!(std::abs(n) < 9e18)) throw Raised{"cannot convert a float of this size to an integer"};
    return Value::of_integer(static_cast<int64_t>(n));
  }
  Value whole(aten::fresh(ops::apply(kind, term(c, v))));
  return Value::of_integer(c.e.integer_of(whole));
}
std::optional<Value> floor_of(const Call& c) { return rounded(c, std::floor, graph::OpKind::kFloor); }
std::optional<Value> ceil_of(const Call& c) { return rounded(c, std::ceil, graph::OpKind::kCeil); }

std::optional<Value> negated(const Call& c) {
  const Value& v = c.at(0);
  if (v.is_whole()) return Value::of_integer(-v.integer);
  if (v.is(VK::kFloat)) return Value::of_float(-v.number);
  return v.is_run_float() ? std::optional(run_float(-term(c, v))) : std::nullopt;
}
std::optional<Value> absolute(const Call& c) {
  const Value& v = c.at(0);
  if (v.is_whole()) return Value::of_integer(sym::abs(v.integer));
  if (v.is(VK::kFloat)) return Value::of_float(std::abs(v.number));
  return v.is_run_float() ? std::optional(run_float(ops::abs(term(c, v)))) : std::nullopt;
}
double root(double x) { return std::sqrt(x); }
template <double (*f)(double), graph::OpKind kind>
std::optional<Value> real_function(const Call& c) {
  if (const auto x = constant(c, c.at(0))) return Value::of_float(f(*x));
  return run_float(ops::apply(kind, term(c, c.at(0))));
}
double exp_of(double x) { return std::exp(x); }
double log_of(double x) { return std::log(x); }
double sin_of(double x) { return std::sin(x); }
double cos_of(double x) { return std::cos(x); }
double tanh_of(double x) { return std::tanh(x); }
// Python rounds halves to the even neighbour.
std::optional<Value> round_of(const Call& c) {
  const Value& v = c.at(0);
  if (v.is_whole()) return Value::of_float(static_cast<double>(c.integer(0)));
  if (c.count() > 1) {
    const double scale = std::pow(10.0, static_cast<double>(c.integer(1)));
    return v.is(VK::kFloat) ? std::optional(Value::of_float(std::nearbyint(v.number * scale) / scale))
                            : std::nullopt;
  }
  if (v.is(VK::kFloat)) return Value::of_float(std::nearbyint(v.number));
  return run_float(ops::apply(graph::OpKind::kRound, term(c, v)));
}
std::optional<Value> not_of(const Call& c) {
  return Value::of_bool(sym::logical_not(c.e.condition_of(c.at(0))));
}

struct Row {
  std::string_view name;
  std::optional<Value> (*run)(const Call& c);
};
constexpr Row kUnary[] = {
    {"__not__", not_of},
    {"abs", absolute},
    {"ceil", ceil_of},
    {"cos", real_function<cos_of, graph::OpKind::kCos>},
    {"exp", real_function<exp_of, graph::OpKind::kExp>},
    {"fabs", absolute},
    {"floor", floor_of},
    {"log", real_function<log_of, graph::OpKind::kLog>},
    {"neg", negated},
    {"round", round_of},
    {"sin", real_function<sin_of, graph::OpKind::kSin>},
    {"sqrt", real_function<root, graph::OpKind::kSqrt>},
    {"tanh", real_function<tanh_of, graph::OpKind::kTanh>},
};

// ---- equality of any values
std::optional<Value> equality(const Call& c) {
  const bool is = c.name == "eq" || c.name == "__is__", is_not = c.name == "ne" || c.name == "__isnot__";
  if ((!is && !is_not) || c.count() != 2) return std::nullopt;
  const Value &a = c.at(0), &b = c.at(1);
  std::optional<sym::Expr> same;
  if (c.name.starts_with("__")) {
    if (a.is_none() || b.is_none())
      same = a.is_none() && b.is_none();
    else if (a.is(VK::kTensor) && b.is(VK::kTensor))
      same = a.tensor.storage == b.tensor.storage && a.tensor.view == b.tensor.view;
    else if (a.object || b.object)
      same = a.object == b.object;
    else
      same = equal(a, b);
  } else {
    if (a.is_tensor() || b.is_tensor()) return std::nullopt;
    same = equal(a, b);
  }
  if (!same) return std::nullopt;
  return Value::of_bool(is ? *same : sym::logical_not(*same));
}

}  // namespace

bool has_number_function(const std::string& name) {
  constexpr std::string_view kBinary[] = {
      "add",     "sub",    "mul",     "div",        "floordiv",   "remainder", "fmod",    "pow",
      "lt",      "le",     "gt",      "ge",         "eq",         "ne",        "__is__",  "__isnot__",
      "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "atan2",     "copysign"};
  return std::ranges::count(kBinary, name) > 0 ||
         std::ranges::any_of(kUnary, [&](const Row& row) { return row.name == name; });
}

std::optional<Value> call_number(const Call& c) {
  if (auto out = equality(c)) return out;
  if (c.count() == 0) return std::nullopt;
  if (c.name == "__not__" || (c.at(0).is_number() && !c.at(0).is(VK::kComplex)))
    for (const Row& row : kUnary)
      if (row.name == c.name) return row.run(c);
  return binary(c);
}

}  // namespace stridec::torchscript

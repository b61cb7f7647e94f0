#include "compiler/frontend/pt2/size_ops.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"

namespace stridec::pt2 {
namespace {

using aten::Value;
using ops::Term;
using Kind = Value::Kind;

bool is_whole(const Value& v) { return v.kind == Kind::kInt || v.kind == Kind::kBool; }

Value real(Term t) {
  Value out(t);
  out.tensor.wrapped = true;
  return out;
}

sym::Expr power(sym::Expr base, sym::Expr exponent) {
  if (!exponent.is_const() || exponent.value() < 0 || exponent.value() > 16)
    fail(ErrorKind::kUnsupported, "unsupported-op", "a power with an exponent that is not a small constant");
  sym::Expr out = 1;
  for (int64_t i = 0; i < exponent.value(); ++i) out = out * base;
  return out;
}

std::optional<Value> on_integers(std::string_view op, const std::vector<Value>& args) {
  const sym::Expr a = args[0].integer, c = args.size() > 1 ? args[1].integer : sym::Expr(0);
  const auto whole = [](sym::Expr e) { return Value::integer_of(e); };
  if (op == "add") return whole(a + c);
  if (op == "sub") return whole(a - c);
  if (op == "mul") return whole(a * c);
  if (op == "floordiv") return whole(sym::floordiv(a, c));
  if (op == "mod") return whole(sym::mod(a, c));
  if (op == "pow") return whole(power(a, c));
  if (op == "neg") return whole(-a);
  if (op == "pos" || op == "sym_int" || op == "trunc") return whole(a);
  if (op == "sym_max") return whole(sym::max(a, c));
  if (op == "sym_min") return whole(sym::min(a, c));
  if (op == "lshift") return whole(a * power(2, c));
  if (op == "rshift") return whole(sym::floordiv(a, power(2, c)));
  if (op == "eq") return Value::condition(sym::eq(a, c));
  if (op == "ne") return Value::condition(sym::ne(a, c));
  if (op == "lt") return Value::condition(sym::lt(a, c));
  if (op == "le") return Value::condition(sym::le(a, c));
  if (op == "gt") return Value::condition(sym::gt(a, c));
  if (op == "ge") return Value::condition(sym::ge(a, c));
  const bool conditions = args[0].kind == Kind::kBool && args.back().kind == Kind::kBool;
  if (op == "and_" && conditions) return Value::condition(sym::logical_and(a, c));
  if (op == "or_" && conditions) return Value::condition(sym::logical_or(a, c));
  if (op == "sym_not") return Value::condition(sym::logical_not(a));
  return std::nullopt;
}

std::optional<Value> on_floats(graph::Builder& b, std::string_view op, const std::vector<Value>& args) {
  const Term x = aten::scalar_of(b, args[0], DType::kF64);
  if (op == "sym_float" || op == "pos") return real(x);
  if (op == "neg") return real(-x);
  if (op == "sym_sqrt") return real(ops::sqrt(x));
  if (op == "sym_int" || op == "trunc") {
    const Term whole = ops::cast(ops::apply(graph::OpKind::kTrunc, x), DType::kI64, false);
    return Value::integer_of(b.symbol_of(whole, "size", -(int64_t{1} << 40), int64_t{1} << 40));
  }
  if (args.size() < 2) return std::nullopt;
  const Term y = aten::scalar_of(b, args[1], DType::kF64);
  if (op == "add") return real(x + y);
  if (op == "sub") return real(x - y);
  if (op == "mul") return real(x * y);
  if (op == "truediv") return real(x / y);
  if (op == "pow") return real(ops::apply(graph::OpKind::kPow, x, y));
  if (op == "sym_max") return real(ops::maximum(x, y));
  if (op == "sym_min") return real(ops::minimum(x, y));
  return std::nullopt;
}

std::string_view plain(std::string_view target) { return target.substr(target.rfind('.') + 1); }

}  // namespace

bool is_size_op(std::string_view target) {
  return target.starts_with("_operator.") || target.starts_with("math.") || target.starts_with("torch.sym_");
}

aten::Value size_op(graph::Builder& b, std::string_view target, const std::vector<Value>& args) {
  const std::string_view op = plain(target);
  if (args.empty() || args.size() > 3)
    fail(ErrorKind::kMalformed, "bad-program", cat(target, " takes other arguments"));
  for (const Value& v : args)
    if (!v.is_number() && !v.is_tensor())
      fail(ErrorKind::kUnsupported, "unsupported-op", cat(target, " of this kind of value"));
  if (op == "sym_ite" && args.size() == 3 && args[0].kind == Kind::kBool && is_whole(args[1]) &&
      is_whole(args[2])) {
    Value out = args[1];
    out.integer = sym::select(args[0].integer, args[1].integer, args[2].integer);
    return out;
  }
  const bool whole =
      is_whole(args[0]) && is_whole(args.back()) && op != "truediv" && op != "sym_float" && op != "sym_sqrt";
  const auto out = whole ? on_integers(op, args) : on_floats(b, op, args);
  if (!out)
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat("operator ", target, " is not supported on these values"));
  return *out;
}

}  // namespace stridec::pt2

#include <string>

#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

enum Strength { kChoice, kEither, kBoth, kEqual, kOrder, kSum, kProduct, kAtom };

struct CPrinter {
  const std::function<std::string(Expr)>& name;
  const Facts& facts;
  bool checked = false;  // sums and products record overflow

  std::string in(std::string text, Strength is, Strength at_least) const {
    return is >= at_least ? std::move(text) : "(" + std::move(text) + ")";
  }

  static std::string literal(int64_t v) {
    if (v == INT64_MIN) return "(-9223372036854775807 - 1)";
    return v < 0 ? "(" + std::to_string(v) + ")" : std::to_string(v);
  }

  bool truncation_is_flooring(Expr a, Expr b) const {
    return facts.bounds(a).lo >= 0 && facts.bounds(b).lo >= 1;
  }

  std::string call(const char* function, std::string a, std::string b) const {
    return cat(function, "(", a, ", ", b, ")");
  }

  std::string joined(Expr e, const char* op, Strength is, Strength at_least) const {
    return in(join(e.args(), op, [&](Expr arg) { return print(arg, static_cast<Strength>(is + 1)); }), is,
              at_least);
  }

  static bool negative(Expr e) {
    if (e.op() == Op::kMul) e = e.arg(0);
    return e.is_const() && e.value() < 0 && e.value() != INT64_MIN;
  }

  std::string sum(Expr e) const {
    std::string out;
    for (const Expr& term : e.args()) {
      if (!negative(term)) out += (out.empty() ? "" : " + ") + print(term, kProduct);
    }
    if (out.empty()) out = "0";
    for (const Expr& term : e.args()) {
      if (negative(term)) out += " - " + print(-term, kProduct);
    }
    return out;
  }

  std::string noted(Expr e, const char* function) const {
    std::string out = print(e.arg(0), kChoice);
    for (const Expr& arg : e.args().subspan(1))
      out = cat(function, "(", out, ", ", print(arg, kChoice), ", &overflow)");
    return out;
  }

  std::string print(Expr e, Strength at_least) const {
    if (checked && e.op() == Op::kAdd) return noted(e, "sd_add");
    if (checked && e.op() == Op::kMul) return noted(e, "sd_mul");
    switch (e.op()) {
      case Op::kConst: return literal(e.value());
      case Op::kVar: return name(e);
      case Op::kAdd: return in(sum(e), kSum, at_least);
      case Op::kMul:
        // Only the first factor may be a division: a * (b / c) is not a * b / c.
        return in(join(e.args(), " * ", [&](Expr arg) { return print(arg, kAtom); }), kProduct, at_least);
      case Op::kFloorDiv:
      case Op::kMod: {
        const bool quotient = e.op() == Op::kFloorDiv;
        if (!truncation_is_flooring(e.arg(0), e.arg(1))) {
          return call(quotient ? "sd_floordiv" : "sd_mod", print(e.arg(0), kChoice),
                      print(e.arg(1), kChoice));
        }
        return in(cat(print(e.arg(0), kAtom), quotient ? " / " : " % ", print(e.arg(1), kAtom)), kProduct,
                  at_least);
      }
      case Op::kMin:
      case Op::kMax: {
        std::string out = print(e.arg(0), kChoice);
        for (const Expr& arg : e.args().subspan(1)) {
          out = call(e.op() == Op::kMin ? "sd_min" : "sd_max", std::move(out), print(arg, kChoice));
        }
        return out;
      }
      case Op::kSelect:
        return in(
            cat(print(e.arg(0), kEither), " ? ", print(e.arg(1), kEither), " : ", print(e.arg(2), kEither)),
            kChoice, at_least);
      case Op::kEq: return joined(e, " == ", kEqual, at_least);
      case Op::kNe: return joined(e, " != ", kEqual, at_least);
      case Op::kLt: return joined(e, " < ", kOrder, at_least);
      case Op::kLe: return joined(e, " <= ", kOrder, at_least);
      case Op::kAnd: return joined(e, " && ", kBoth, at_least);
      case Op::kOr: {  // compilers warn about && inside || without parentheses
        auto arg = [&](Expr a) { return print(a, a.op() == Op::kAnd ? kAtom : kBoth); };
        return in(join(e.args(), " || ", arg), kEither, at_least);
      }
    }
    return {};
  }
};

}  // namespace

std::string to_c(Expr e, const std::function<std::string(Expr)>& name, const Facts& facts) {
  return CPrinter{name, facts}.print(e, kChoice);
}

std::string to_c(Expr e, const std::function<std::string(Expr)>& name) { return to_c(e, name, Facts()); }

std::string to_checked_c(Expr e, const std::function<std::string(Expr)>& name, const Facts& facts) {
  return CPrinter{name, facts, true}.print(e, kChoice);
}

std::string_view c_helpers() {
  return R"(static inline int64_t sd_floordiv(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t sd_mod(int64_t a, int64_t b) {
  int64_t r = b == 0 ? 0 : a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t sd_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t sd_max(int64_t a, int64_t b) { return a > b ? a : b; }
)";
}
std::string_view checked_c_helpers() {
  return R"(static inline int64_t sd_add(int64_t a, int64_t b, int32_t* overflow) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) *overflow = 1;
  return r;
}
static inline int64_t sd_mul(int64_t a, int64_t b, int32_t* overflow) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) *overflow = 1;
  return r;
}
)";
}

}  // namespace stridec::sym

// Body: index expressions as scalars, as vectors of integers or conditions, and their uniform parts.
#include <algorithm>
#include <map>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/codegen/strided_access.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/vectorize_analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {

using sym::Expr;

const Expr& Body::lane() {
  static const Expr var = sym::var("%lane");
  return var;
}

bool Body::lane_dependent(Expr expr) const {
  if (width_ == 1) return false;
  for (const Expr& var : sym::free_vars(expr))
    if (var == lane() || lane_index_.count(var)) return true;
  return false;
}

Expr Body::by_lane(Expr expr) const {
  if (width_ == 1 || !sym::depends_on(expr, *lane_var_)) return sym::simplify(expr, facts_);
  return sym::simplify(sym::substitute(expr, *lane_var_, *lane_var_ + lane()),
                       facts_.with_index(lane(), width_));
}

// Turns an expression without index variables into an argument of the kernel, unless it is one already.
Expr Body::uniform(Expr expr) {
  if (expr.is_const()) return expr;
  sym::Substitution arguments;
  bool done = false;
  for (const Expr& var : sym::free_vars(expr)) {
    if (var.name()[0] == '$')
      done = true;
    else
      arguments[var] = var;
  }
  if (!done) return text_.size_symbol(expr);
  for (auto& [var, argument] : arguments) argument = text_.size_symbol(var);
  return sym::substitute(expr, arguments);
}

Expr Body::canonical(Expr expr) {
  if (!sym::has_index(expr)) return uniform(expr);
  if (expr.is_var()) return expr;
  std::vector<Expr> args;
  if (expr.op() == sym::Op::kAdd || expr.op() == sym::Op::kMul) {
    // Collect one coefficient per product of varying variables, so that a stride that is a sum of sizes
    // becomes one argument.
    std::map<Expr, Expr, sym::ExprLess> terms;
    const std::span<const Expr> one(&expr, 1);
    for (const Expr& term : expr.op() == sym::Op::kAdd ? expr.args() : one) {
      std::vector<Expr> varying;
      Expr coefficient = 1;
      const std::span<const Expr> alone(&term, 1);
      for (const Expr& factor : term.op() == sym::Op::kMul ? term.args() : alone) {
        if (sym::has_index(factor))
          varying.push_back(canonical(factor));
        else
          coefficient *= factor;
      }
      const auto [found, fresh] = terms.try_emplace(sym::product(varying), coefficient);
      if (!fresh) found->second += coefficient;
    }
    for (const auto& [varying, coefficient] : terms) args.push_back(varying * uniform(coefficient));
    return sym::sum(args);
  }
  for (const Expr& arg : expr.args()) args.push_back(canonical(arg));
  switch (expr.op()) {
    case sym::Op::kFloorDiv: return sym::floordiv(args[0], args[1]);
    case sym::Op::kMod: return sym::mod(args[0], args[1]);
    case sym::Op::kMin: return sym::min(args);
    case sym::Op::kMax: return sym::max(args);
    case sym::Op::kSelect: return sym::select(args[0], args[1], args[2]);
    case sym::Op::kEq: return sym::eq(args[0], args[1]);
    case sym::Op::kNe: return sym::ne(args[0], args[1]);
    case sym::Op::kLt: return sym::lt(args[0], args[1]);
    case sym::Op::kLe: return sym::le(args[0], args[1]);
    case sym::Op::kAnd: return sym::logical_and(args);
    case sym::Op::kOr: return sym::logical_or(args);
    default: break;
  }
  STRIDEC_CHECK(false, sym::to_string(expr));
}

std::string Body::scalar_text(Expr expr) {
  const Expr c = canonical(expr);
  // Add facts about the size symbols created so far.
  sym::Facts facts = facts_;
  for (const Expr& var : sym::free_vars(c))
    if (var.name()[0] == '$') {
      const sym::Interval range = text_.facts().bounds(var);
      facts.set_range(var, range.has_lo() ? std::optional(range.lo) : std::nullopt,
                      range.has_hi() ? std::optional(range.hi) : std::nullopt);
    }
  return sym::to_c(
      c,
      [&](Expr var) -> std::string {
        if (var.name()[0] == '$') return var.name().substr(1);
        auto found = index_.find(var);
        STRIDEC_CHECK(found != index_.end(),
                      cat("index variable ", var.name(), " of nest '", nest_.name, "' is not set"));
        return found->second;
      },
      facts);
}

std::string Body::index(Expr expr) { return scalar_text(sym::simplify(expr, facts_)); }

bool Body::fits_i32(Expr expr) const {
  const sym::Facts facts = facts_.with_index(lane(), width_);
  bool fits = true;
  sym::for_each_node(expr, [&](Expr node) {
    const sym::Interval range = facts.bounds(node);
    if (range.lo < INT32_MIN / 2 || range.hi > INT32_MAX / 2) fits = false;
  });
  return fits;
}

// Only for expressions that by_lane() and canonical() have processed.
std::string Body::vector_text(Expr expr, const std::string& element) {
  const DType dtype = element == "i32" ? DType::kI32 : DType::kI64;
  const std::string type = text_.value_type(dtype, width_);
  if (!lane_dependent(expr)) return cat("(", type, ")(", element, ")(", scalar_text(expr), ")");
  auto of = [&](Expr arg) { return vector_text(arg, element); };
  switch (expr.op()) {
    case sym::Op::kVar: {
      if (expr == lane()) {
        text_.use(cat("iota.", element), width_);
        return cat("sd_iota_", type);
      }
      const std::string& bound = lane_index_.at(expr);
      return element == "i64" ? bound : cat("__builtin_convertvector(", bound, ", ", type, ")");
    }
    case sym::Op::kAdd:
    case sym::Op::kMul: {
      const bool add = expr.op() == sym::Op::kAdd;
      Expr uniform = add ? 0 : 1;
      std::string out;
      for (const Expr& arg : expr.args()) {
        if (!lane_dependent(arg))
          uniform = add ? uniform + arg : uniform * arg;
        else
          out += cat(out.empty() ? "" : add ? " + " : " * ", of(arg));
      }
      if (!uniform.is_const(add ? 0 : 1))
        out += cat(add ? " + " : " * ", "(", element, ")(", scalar_text(uniform), ")");
      return cat("(", out, ")");
    }
    case sym::Op::kFloorDiv:
    case sym::Op::kMod: {
      const bool div = expr.op() == sym::Op::kFloorDiv;
      const std::optional<int64_t> divisor = sym::as_const(expr.arg(1));
      if (divisor && *divisor > 0 && std::has_single_bit(static_cast<uint64_t>(*divisor)))
        return div ? cat("(", of(expr.arg(0)), " >> ", std::countr_zero(static_cast<uint64_t>(*divisor)), ")")
                   : cat("(", of(expr.arg(0)), " & ", *divisor - 1, ")");
      const sym::Facts facts = facts_.with_index(lane(), width_);
      // For values below 2^52 the quotient in doubles cannot round up to the next integer. This avoids
      // integer division, which has no vector instruction.
      const sym::Interval dividend = facts.bounds(expr.arg(0)), by = facts.bounds(expr.arg(1));
      constexpr int64_t kExact = int64_t{1} << 52;
      if (element == "i64" && text_.target().avx512 && dividend.lo > -kExact && dividend.hi < kExact &&
          by.lo >= 1 && by.hi < kExact) {
        text_.use("quotient", width_);
        return cat(div ? "sd_quotient(" : "sd_remainder(", of(expr.arg(0)), ", ", of(expr.arg(1)), ")");
      }
      if (divisor && *divisor > 0 && dividend.lo >= 0)
        return cat("(", of(expr.arg(0)), div ? " / " : " % ", *divisor, ")");
      text_.use(cat(div ? "floordiv." : "mod_floor.", element), width_);
      return cat(div ? "sd_vfloordiv(" : "sd_vmod(", of(expr.arg(0)), ", ", of(expr.arg(1)), ")");
    }
    case sym::Op::kMin:
    case sym::Op::kMax: {
      std::string out = of(expr.arg(0));
      const char* name = expr.op() == sym::Op::kMin ? "min" : "max";
      for (size_t i = 1; i < expr.args().size(); ++i)
        out = cat("__builtin_elementwise_", name, "(", out, ", ", of(expr.arg(i)), ")");
      return out;
    }
    case sym::Op::kSelect: {
      text_.use(cat("select.", element), width_);
      return cat("sd_select(", vector_condition(expr.arg(0), element), ", ", of(expr.arg(1)), ", ",
                 of(expr.arg(2)), ")");
    }
    default: return cat("__builtin_convertvector(", vector_condition(expr, element), ", ", type, ")");
  }
}

std::string Body::vector_condition(Expr expr, const std::string& element) {
  const std::string type = text_.value_type(DType::kBool, width_);
  if (!lane_dependent(expr)) return cat("(", type, ")(bool)(", scalar_text(expr), ")");
  auto compare = [&](const char* op) {
    return cat("__builtin_convertvector(", vector_text(expr.arg(0), element), " ", op, " ",
               vector_text(expr.arg(1), element), ", ", type, ")");
  };
  switch (expr.op()) {
    case sym::Op::kEq: return compare("==");
    case sym::Op::kNe: return compare("!=");
    case sym::Op::kLt: return compare("<");
    case sym::Op::kLe: return compare("<=");
    case sym::Op::kAnd:
    case sym::Op::kOr:
      return cat("(",
                 join(expr.args(), expr.op() == sym::Op::kAnd ? " & " : " | ",
                      [&](Expr arg) { return vector_condition(arg, element); }),
                 ")");
    default: return cat("__builtin_convertvector(", vector_text(expr, element), " != 0, ", type, ")");
  }
}

void Body::print_index_value(const loop::IndexValue& value) {
  const DType dtype = nest_.values[value.result.value].dtype;
  const Expr expr = canonical(by_lane(value.expr));
  if (!lane_dependent(expr))
    return define(value.result,
                  cast_text(cat("(i64)(", scalar_text(expr), ")"), DType::kI64, dtype, 1, false), 1);
  const std::string element = fits_i32(expr) ? "i32" : "i64";
  if (element == "i32" && dtype == DType::kI64) {
    const std::string narrow = text_.fresh("n");
    text_.line(cat("const ", text_.value_type(DType::kI32, width_), " ", narrow, " = ",
                   vector_text(expr, element), ";"));
    define(value.result, cast_text(narrow, DType::kI32, dtype, width_, false), width_);
    CValue result = this->value(value.result);
    result.as_i32 = narrow;
    return set_value(value.result, std::move(result));
  }
  define(value.result,
         cast_text(vector_text(expr, element), element == "i32" ? DType::kI32 : DType::kI64, dtype, width_,
                   false),
         width_);
}

}  // namespace stridec::codegen

#include "compiler/sym/phrase.h"

#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

bool is_multiple(Expr c) {
  return c.op() == Op::kEq && ((c.arg(0).op() == Op::kMod && c.arg(1).is_const(0)) ||
                               (c.arg(1).op() == Op::kMod && c.arg(0).is_const(0)));
}

// The remainder in a condition for which is_multiple() holds.
Expr remainder_of(Expr c) { return c.arg(c.arg(0).op() == Op::kMod ? 0 : 1); }

std::string joined(Expr c, const char* word) {
  std::string out;
  for (Expr part : c.args()) {
    const bool nested = part.op() == Op::kAnd || part.op() == Op::kOr;
    out += (out.empty() ? "" : word) + (nested ? "(" + phrase(part) + ")" : phrase(part));
  }
  return out;
}

}  // namespace

std::string phrase(Expr c) {
  switch (c.op()) {
    case Op::kAnd: return joined(c, " and ");
    case Op::kOr: return joined(c, " or ");
    case Op::kEq:
      if (is_multiple(c)) {
        const Expr remainder = remainder_of(c);
        return to_string(remainder.arg(0)) + " is a multiple of " + to_string(remainder.arg(1));
      }
      return c.arg(0).is_const() ? to_string(c.arg(1)) + " == " + to_string(c.arg(0)) : to_string(c);
    case Op::kLe:
      return c.arg(0).is_const() ? to_string(c.arg(1)) + " >= " + to_string(c.arg(0)) : to_string(c);
    case Op::kLt:
      return c.arg(0).is_const() ? to_string(c.arg(1)) + " > " + to_string(c.arg(0)) : to_string(c);
    default: return to_string(c);
  }
}

std::optional<Expr> bounded_variable(Expr c) {
  if (is_multiple(c)) {
    const Expr remainder = remainder_of(c);
    if (remainder.arg(0).is_var() && remainder.arg(1).is_const()) return remainder.arg(0);
  }
  if (c.op() != Op::kLe && c.op() != Op::kLt) return std::nullopt;
  if (c.arg(0).is_var() && c.arg(1).is_const()) return c.arg(0);
  if (c.arg(1).is_var() && c.arg(0).is_const()) return c.arg(1);
  return std::nullopt;
}

}  // namespace stridec::sym

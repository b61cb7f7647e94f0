#include "compiler/sym/text.h"

#include <algorithm>
#include <array>
#include <ostream>

#include "compiler/base/text.h"
#include "compiler/sym/parse_names.h"

namespace stridec::sym {
namespace {

// Operator precedence; an operand of lower precedence is parenthesised.
enum Strength {
  kOrStrength,
  kAndStrength,
  kCompareStrength,
  kSumStrength,
  kProductStrength,
  kUnaryStrength,
  kAtomStrength
};

Strength strength(Expr e) {
  switch (e.op()) {
    case Op::kOr: return kOrStrength;
    case Op::kAnd: return kAndStrength;
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe: return kCompareStrength;
    case Op::kAdd: return kSumStrength;
    case Op::kMul:
    case Op::kFloorDiv: return kProductStrength;
    case Op::kConst: return e.value() < 0 ? kUnaryStrength : kAtomStrength;
    default: return kAtomStrength;
  }
}

const char* spelling(Op op) {
  switch (op) {
    case Op::kEq: return " == ";
    case Op::kNe: return " != ";
    case Op::kLt: return " < ";
    case Op::kLe: return " <= ";
    case Op::kAnd: return " && ";
    case Op::kOr: return " || ";
    case Op::kMod: return "mod";
    case Op::kMin: return "min";
    case Op::kMax: return "max";
    case Op::kSelect: return "select";
    default: return "?";
  }
}

std::string symbol(const std::string& name) {
  std::string_view bare = name;
  if (bare.starts_with('%')) bare.remove_prefix(1);
  if (is_plain_name(bare) && (bare.size() != name.size() || !is_function_name(name))) return name;
  std::string quoted = "`";
  for (char c : name) quoted += c == '`' ? std::string("``") : std::string(1, c);
  return quoted + "`";
}

struct Printer {
  std::string out;

  void operand(Expr e, Strength at_least) {
    if (strength(e) >= at_least) return print(e);
    out += '(';
    print(e);
    out += ')';
  }

  void list(std::span<const Expr> args) {
    out += '(';
    for (size_t i = 0; i < args.size(); ++i) {
      if (i != 0) out += ", ";
      print(args[i]);
    }
    out += ')';
  }

  void joined(std::span<const Expr> args, Op op, Strength at_least) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (i != 0) out += spelling(op);
      operand(args[i], at_least);
    }
  }

  // Prints a term of a sum without its sign.
  void term(Expr e) {
    if (e.is_const()) {
      out += std::to_string(e.value()).substr(e.value() < 0);
    } else if (e.op() == Op::kMul && e.arg(0).is_const() && e.arg(0).value() < 0) {
      if (e.arg(0).value() != -1) out += std::to_string(e.arg(0).value()).substr(1) + "*";
      factors(e.args().subspan(1));
    } else if (e.op() == Op::kMul) {
      factors(e.args());
    } else {
      operand(e, kProductStrength);
    }
  }

  static bool negative(Expr e) {
    if (e.op() == Op::kMul) e = e.arg(0);
    return e.is_const() && e.value() < 0;
  }

  // Prints a sum, starting with a term that needs no sign if there is one.
  void sum(std::span<const Expr> args) {
    auto first = std::find_if_not(args.begin(), args.end(), negative);
    if (first == args.end()) {
      first = args.begin();
      out += '-';
    }
    term(*first);
    for (auto at = args.begin(); at != args.end(); ++at) {
      if (at == first) continue;
      out += negative(*at) ? " - " : " + ";
      term(*at);
    }
  }

  void factors(std::span<const Expr> args) {
    for (size_t i = 0; i < args.size(); ++i) {
      if (i != 0) out += '*';
      operand(args[i], kUnaryStrength);
    }
  }

  void print(Expr e) {
    switch (e.op()) {
      case Op::kConst: out += std::to_string(e.value()); return;
      case Op::kVar: out += symbol(e.name()); return;
      case Op::kMul:
        if (negative(e)) out += '-';
        return term(e);
      case Op::kAdd: return sum(e.args());
      case Op::kFloorDiv:
        operand(e.arg(0), kUnaryStrength);
        out += "//";
        return operand(e.arg(1), kUnaryStrength);
      case Op::kEq:
      case Op::kNe:
      case Op::kLt:
      case Op::kLe: return joined(e.args(), e.op(), kSumStrength);
      case Op::kAnd: return joined(e.args(), e.op(), kCompareStrength);
      case Op::kOr: return joined(e.args(), e.op(), kAndStrength);
      case Op::kMod:
      case Op::kMin:
      case Op::kMax:
      case Op::kSelect: out += spelling(e.op()); return list(e.args());
    }
  }
};

}  // namespace

bool is_plain_name(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  auto inner = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.'; };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), inner);
}

bool is_function_name(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kNames = {"mod",      "min",     "max",      "select",
                                                             "floordiv", "ceildiv", "align_up", "abs"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string to_string(Expr e) {
  Printer p;
  p.print(e);
  return std::move(p.out);
}

std::string to_string(Interval interval) {
  if (interval.empty()) return "none";
  if (!interval.has_lo() && !interval.has_hi()) return "any";
  if (interval.is_point()) return std::to_string(interval.lo);
  return cat(interval.has_lo() ? std::to_string(interval.lo) : "", "..",
             interval.has_hi() ? std::to_string(interval.hi) : "");
}

std::ostream& operator<<(std::ostream& out, Expr e) { return out << to_string(e); }

}  // namespace stridec::sym

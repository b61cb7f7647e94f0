#include "compiler/sym/pattern.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/rebuild.h"

namespace stridec::sym::pattern {
namespace {

bool associative(Op op) {
  return op == Op::kAdd || op == Op::kMul || op == Op::kMin || op == Op::kMax || op == Op::kAnd ||
         op == Op::kOr;
}

bool free_wildcard(const Pattern& p, const Bindings& b) {
  return p.kind == Pattern::Kind::kWildcard && p.wildcard < kFirstConstant && !b[p.wildcard];
}

struct Matcher {
  Bindings& b;
  using Next = const std::function<bool()>&;

  bool visit(const Pattern& p, Expr e, Next next) {
    switch (p.kind) {
      case Pattern::Kind::kLiteral: return e.is_const(p.literal) && next();
      case Pattern::Kind::kWildcard: {
        auto& bound = b[p.wildcard];
        if (bound) return *bound == e && next();
        if (p.wildcard >= kFirstConstant && !e.is_const()) return false;
        bound = e;
        if (next()) return true;
        bound.reset();
        return false;
      }
      case Pattern::Kind::kOperation: break;
    }
    if (e.op() != p.op) return false;
    if (associative(p.op)) {
      std::vector<Expr> args(e.args().begin(), e.args().end());
      return any_order(p, 0, args, [&](std::span<const Expr> rest) { return rest.empty() && next(); });
    }
    if (in_order(p, e, 0, next)) return true;
    if (p.op != Op::kEq && p.op != Op::kNe) return false;
    return visit(p.args[0], e.arg(1), [&] { return visit(p.args[1], e.arg(0), next); });
  }

  bool in_order(const Pattern& p, Expr e, size_t i, Next next) {
    if (i == p.args.size()) return next();
    return visit(p.args[i], e.arg(i), [&] { return in_order(p, e, i + 1, next); });
  }

  // Matches operand i and later ones of the pattern with distinct operands among `args`, in any order.
  bool any_order(const Pattern& p, size_t i, std::vector<Expr>& args,
                 const std::function<bool(std::span<const Expr>)>& accept, bool root = false) {
    if (i == p.args.size()) return accept(args);
    if (!root && i + 1 == p.args.size() && free_wildcard(p.args[i], b) && !args.empty()) {
      return visit(p.args[i], args.size() == 1 ? args[0] : rebuild(p.op, args), [&] { return accept({}); });
    }
    for (size_t k = 0; k < args.size(); ++k) {
      std::vector<Expr> others = args;
      others.erase(others.begin() + static_cast<ptrdiff_t>(k));
      if (visit(p.args[i], args[k], [&] { return any_order(p, i + 1, others, accept, root); })) return true;
    }
    return false;
  }
};

}  // namespace

Pattern Pattern::any(int index) {
  Pattern p(0);
  p.kind = Kind::kWildcard;
  p.wildcard = index;
  return p;
}

// Flattens nested operands of the same associative operation into one list, with plain wildcards last.
Pattern::Pattern(Op operation, std::initializer_list<Pattern> operands)
    : kind(Kind::kOperation), op(operation) {
  std::vector<Pattern> last;
  auto add = [&](const Pattern& p) {
    (associative(op) && p.kind == Kind::kWildcard ? last : args).push_back(p);
  };
  for (const Pattern& p : operands) {
    if (associative(op) && p.kind == Kind::kOperation && p.op == op) {
      for (const Pattern& inner : p.args) add(inner);
    } else {
      add(p);
    }
  }
  args.insert(args.end(), last.begin(), last.end());
}

bool match(const Pattern& p, Expr e, Bindings& b, const std::function<bool(std::span<const Expr>)>& accept) {
  Matcher m{b};
  if (p.kind == Pattern::Kind::kOperation && p.op == e.op() && associative(p.op)) {
    std::vector<Expr> args(e.args().begin(), e.args().end());
    return m.any_order(p, 0, args, accept, true);
  }
  return m.visit(p, e, [&] { return accept({}); });
}

Expr instantiate(const Pattern& p, const Bindings& b) {
  switch (p.kind) {
    case Pattern::Kind::kLiteral: return p.literal;
    case Pattern::Kind::kWildcard:
      STRIDEC_CHECK(b[p.wildcard].has_value(), "a rule uses a wildcard that its pattern does not have");
      return *b[p.wildcard];
    case Pattern::Kind::kOperation: break;
  }
  std::vector<Expr> args;
  for (const Pattern& arg : p.args) args.push_back(instantiate(arg, b));
  return rebuild(p.op, args);
}

std::optional<int64_t> value_of(const Pattern& p, std::span<const int64_t> wildcards) {
  if (p.kind == Pattern::Kind::kLiteral) return p.literal;
  if (p.kind == Pattern::Kind::kWildcard) return wildcards[static_cast<size_t>(p.wildcard)];
  if (p.op == Op::kSelect) {
    Checked c = value_of(p.args[0], wildcards);
    return c ? value_of(p.args[*c != 0 ? 1 : 2], wildcards) : std::nullopt;
  }
  if (p.op == Op::kAnd || p.op == Op::kOr) {
    const bool deciding = p.op == Op::kOr;
    bool known = true;
    for (const Pattern& arg : p.args) {
      Checked v = value_of(arg, wildcards);
      if (v && (*v != 0) == deciding) return deciding;
      known &= v.has_value();
    }
    return known ? Checked(!deciding) : std::nullopt;
  }
  Checked total = value_of(p.args[0], wildcards);
  for (size_t i = 1; i < p.args.size() && total; ++i) {
    Checked v = value_of(p.args[i], wildcards);
    total = v ? apply(p.op, *total, *v) : std::nullopt;
  }
  return total;
}

}  // namespace stridec::sym::pattern

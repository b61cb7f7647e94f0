#include <algorithm>

#include "compiler/sym/polynomial.h"

namespace stridec::sym {
namespace {

int three_way(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

struct Monomial {
  std::span<const Expr> factors;
  int64_t coefficient;
};

Monomial monomial(const Expr& e) {
  if (e.op() != Op::kMul) return {{&e, 1}, 1};
  auto args = e.args();
  if (args[0].is_const()) return {args.subspan(1), args[0].value()};
  return {args, 1};
}

}  // namespace

// Constants last; products of more factors first (a graded order, so that polynomial division terminates),
// then factor by factor. Different nodes differ in some operand, so the recursion follows a single path.
int compare(Expr a, Expr b) {
  if (a == b) return 0;
  bool ca = a.is_const(), cb = b.is_const();
  if (ca || cb) return ca && cb ? three_way(a.value(), b.value()) : (ca ? 1 : -1);
  if (a.op() == Op::kMul || b.op() == Op::kMul) {
    Monomial x = monomial(a), y = monomial(b);
    if (x.factors.size() != y.factors.size()) return x.factors.size() > y.factors.size() ? -1 : 1;
    for (size_t i = 0; i < x.factors.size(); ++i) {
      if (int c = compare(x.factors[i], y.factors[i])) return c;
    }
    return three_way(x.coefficient, y.coefficient);
  }
  if (a.op() != b.op()) return a.op() < b.op() ? -1 : 1;
  if (a.op() == Op::kVar) return a.name().compare(b.name()) < 0 ? -1 : 1;
  auto x = a.args(), y = b.args();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (int c = compare(x[i], y[i])) return c;
  }
  return x.size() < y.size() ? -1 : 1;
}

}  // namespace stridec::sym

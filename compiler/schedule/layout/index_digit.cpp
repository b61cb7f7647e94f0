#include "compiler/schedule/layout/index_digit.h"

#include <algorithm>
#include <utility>

namespace stridec::schedule {

std::optional<Digit> digit_of(sym::Expr e, const std::vector<loop::Dim>& dims) {
  Digit digit{.var = e, .place = 1, .size = 0, .value = 0};
  if (e.op() == sym::Op::kMod) {
    digit.size = e.arg(1);
    digit.var = e.arg(0);
  }
  if (digit.var.op() == sym::Op::kFloorDiv) {
    digit.place = digit.var.arg(1);
    digit.var = digit.var.arg(0);
  }
  const auto dim = std::find_if(dims.begin(), dims.end(), [&](const auto& d) { return d.var == digit.var; });
  if (dim == dims.end() || sym::has_index(digit.place) || sym::has_index(digit.size)) return std::nullopt;
  if (digit.size.is_const(0)) digit.size = sym::floordiv(dim->extent, digit.place);
  return digit;
}

std::vector<Digit> digits_of(sym::Expr index, sym::Expr at, sym::Expr extent,
                             const std::vector<loop::Dim>& dims, const sym::Facts& facts) {
  std::vector<std::pair<sym::Expr, Digit>> terms;  // with their factors
  const auto list = index.op() == sym::Op::kAdd
                        ? std::vector<sym::Expr>(index.args().begin(), index.args().end())
                        : std::vector<sym::Expr>{index};
  for (sym::Expr term : list) {
    sym::Expr factor = 1, rest = term;
    if (term.op() == sym::Op::kMul) {
      rest = 1;
      for (sym::Expr part : term.args()) (sym::has_index(part) ? rest : factor) *= part;
    }
    const auto digit = digit_of(rest, dims);
    if (!digit) return {};
    terms.emplace_back(factor, *digit);
  }
  std::vector<Digit> out;
  sym::Expr reached = 1;
  while (!terms.empty()) {
    const auto next = std::find_if(terms.begin(), terms.end(),
                                   [&](const auto& t) { return sym::simplify(t.first, facts) == reached; });
    if (next == terms.end()) return {};
    Digit digit = next->second;
    digit.value = sym::floordiv(at, reached);
    reached = sym::simplify(reached * digit.size, facts);
    if (terms.size() > 1) digit.value = sym::mod(digit.value, digit.size);
    out.push_back(digit);
    terms.erase(next);
  }
  return reached == sym::simplify(extent, facts) ? out : std::vector<Digit>{};
}

}  // namespace stridec::schedule

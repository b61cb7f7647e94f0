#include "compiler/schedule/layout/index_digit.h"

#include <algorithm>

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

}  // namespace stridec::schedule

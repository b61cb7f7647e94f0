#include "compiler/loop/index_range.h"

namespace stridec::loop {

std::optional<IndexRange> range_of(sym::Expr e, const std::vector<Dim>& dims) {
  IndexRange range{e, e};
  for (const Dim& dim : dims) {
    if (!sym::depends_on(e, dim.var)) continue;
    const auto linear = sym::linear_in(e, dim.var);
    const auto step = linear ? sym::as_const(linear->coefficient) : std::nullopt;
    if (!step || *step < 0) return std::nullopt;
    range.least = sym::substitute(range.least, dim.var, 0);
    range.most = sym::substitute(range.most, dim.var, dim.extent - 1);
  }
  if (sym::has_index(range.least) || sym::has_index(range.most)) return std::nullopt;
  return range;
}

}  // namespace stridec::loop

#include "compiler/ops/name_size.h"

namespace stridec::ops {

sym::Expr named(graph::Builder& b, sym::Expr e, const std::string& hint, sym::Expr lower, sym::Expr upper,
                uint32_t most_nodes) {
  if (e.size() <= most_nodes || !b.is_bound_in_run(e)) return e;
  return b.symbol_of(b.elements({e}, {}), hint, lower, upper);
}

graph::Shape named(graph::Builder& b, graph::Shape shape, const std::string& hint) {
  for (sym::Expr& size : shape) size = named(b, b.simplify(size), hint, 0, kLargestSize);
  return shape;
}

}  // namespace stridec::ops

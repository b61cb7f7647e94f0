#include "compiler/ops/named.h"

namespace stridec::ops {

namespace {

constexpr uint32_t kLong = 12;  // nodes

}  // namespace

sym::Expr named(graph::Builder& b, sym::Expr e, const std::string& hint, sym::Expr lower, sym::Expr upper) {
  if (e.size() <= kLong || !b.is_bound_in_run(e)) return e;
  return b.symbol_of(b.elements({e}, {}), hint, lower, upper);
}

graph::Shape named(graph::Builder& b, graph::Shape shape, const std::string& hint) {
  for (sym::Expr& size : shape) size = named(b, b.simplify(size), hint, 0, kLargestSize);
  return shape;
}

}  // namespace stridec::ops

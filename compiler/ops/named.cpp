#include "compiler/ops/named.h"

#include "compiler/base/text.h"
#include "compiler/sym/text.h"

namespace stridec::ops {

namespace {

constexpr uint32_t kLong = 12;  // nodes

}  // namespace

sym::Expr named(graph::Builder& b, sym::Expr e, const std::string& hint, sym::Expr lower, sym::Expr upper) {
  if (e.size() <= kLong || !b.is_bound_in_run(e)) return e;
  const sym::Expr symbol = b.fresh_symbol(hint, lower, upper);
  b.add(graph::OpKind::kSymbolOf, {b.elements({e}, {})},
        {{"symbol", symbol},
         {"lower", lower},
         {"upper", upper},
         {"sentence", cat(hint, " is {0}, outside ", sym::to_string(lower), "..", sym::to_string(upper))}});
  return symbol;
}

graph::Shape named(graph::Builder& b, graph::Shape shape, const std::string& hint) {
  for (sym::Expr& size : shape) size = named(b, b.simplify(size), hint, 0, kLargestSize);
  return shape;
}

}  // namespace stridec::ops

#include "compiler/ops/composite/creation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

Term arange(Term start, Term limit, Term delta) {
  Builder& b = start.builder();
  const DType type = start.dtype();
  sym::Expr length = 0;
  const auto known = [&](Term t) -> std::optional<sym::Expr> {
    const auto e = b.known(t);
    return e && e->size() == 1 ? std::optional((*e)[0]) : std::nullopt;
  };
  const auto k0 = known(start), k1 = known(limit), k2 = known(delta);
  const auto step = k2 ? sym::as_const(*k2) : std::nullopt;
  if (known_number(delta) == 0.0) does_not_fit("the step is 0");
  if (k0 && k1 && step && *step != 0) {
    length = *step > 0 ? sym::ceildiv(*k1 - *k0, *step) : sym::ceildiv(*k0 - *k1, -*step);
    length = b.simplify(sym::max(length, 0));
  } else {
    const auto n0 = known_number(start), n1 = known_number(limit), n2 = known_number(delta);
    if (n0 && n1 && n2 && *n2 != 0) {
      const double steps = std::ceil((*n1 - *n0) / *n2);
      if (!(steps <= static_cast<double>(kLargestSize)))
        does_not_fit(cat("from ", *n0, " to ", *n1, " by ", *n2, " are more numbers than a tensor holds"));
      length = static_cast<int64_t>(std::max(steps, 0.0));
    } else {
      const DType wide = type == DType::kF32 || is_storage_float(type) ? DType::kF32 : DType::kF64;
      const Term steps = apply(OpKind::kCeil, (cast(limit, wide) - cast(start, wide)) / cast(delta, wide));
      length = b.elements_of(cast(maximum(steps, 0), DType::kI64), "range", 0, kLargestSize).at(0);
    }
  }
  const DType compute = is_storage_float(type) ? DType::kF32 : type;
  const Term i = cast(index_along(b, {length}, 0, DType::kI64), compute);
  return cast(cast(start, compute) + i * cast(delta, compute), type);
}

Term eye(Builder& b, const Shape& shape, sym::Expr diagonal) {
  const Term row = index_along(b, shape, 0, DType::kI64), column = index_along(b, shape, 1, DType::kI64);
  return equal(column, row + size_as(b, DType::kI64, diagonal));
}

Term triangle(Term x, sym::Expr k, bool upper) {
  Builder& b = x.builder();
  const Shape plane(x.shape().end() - 2, x.shape().end());
  const Term row = index_along(b, plane, 0, DType::kI64), column = index_along(b, plane, 1, DType::kI64);
  const Term diagonal = row + size_as(b, DType::kI64, k);
  const Term keep = upper ? greater_equal(column, diagonal) : less_equal(column, diagonal);
  return select(keep, x, number_like(x, 0));
}

}  // namespace stridec::ops

#include "compiler/ops/axes.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

// Number of axes less than dim.
sym::Expr before(const Axes& axes, int64_t dim) {
  sym::Expr n = 0;
  for (sym::Expr a : axes.at) n += sym::lt(a, dim);
  return n;
}

}  // namespace

std::optional<Dims> Axes::known() const {
  Dims out;
  for (sym::Expr a : at) {
    if (!a.is_const()) return std::nullopt;
    out.push_back(a.value());
  }
  return out;
}

sym::Expr Axes::has(int64_t dim) const {
  sym::Expr any = 0;
  for (sym::Expr a : at) any = sym::logical_or(any, sym::eq(a, dim));
  return any;
}

sym::Expr Axes::pick(int64_t dim, const std::vector<sym::Expr>& values, sym::Expr otherwise) const {
  STRIDEC_CHECK(values.size() == at.size());
  for (size_t i = at.size(); i-- > 0;) otherwise = sym::select(sym::eq(at[i], dim), values[i], otherwise);
  return otherwise;
}

sym::Expr Axes::pick_size(const Shape& shape) const {
  STRIDEC_CHECK(at.size() == 1 && rank > 0);
  sym::Expr size = shape[static_cast<size_t>(rank - 1)];
  for (int64_t d = rank - 1; d-- > 0;)
    size = sym::select(sym::eq(at[0], d), shape[static_cast<size_t>(d)], size);
  return size;
}

Axes axes_of(Builder& b, const std::vector<sym::Expr>& values, int64_t rank) {
  Axes out{.at = {}, .rank = rank};
  for (sym::Expr v : values) {
    b.require(sym::logical_and(sym::le(-rank, v), sym::lt(v, rank)),
              cat("axis {0} is outside a tensor of rank ", rank), {v});
    out.at.push_back(b.simplify(sym::mod(v, rank)));
  }
  for (size_t i = 0; i < out.at.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      b.require(sym::ne(out.at[i], out.at[j]),
                out.at[i].is_const() ? "axis {0} is given twice" : "an axis is given twice", {out.at[i]});
  return out;
}

Shape without(const Shape& shape, const Axes& axes) {
  const auto axis_count = static_cast<int64_t>(axes.at.size());
  Shape out;
  for (int64_t j = 0; j < axes.rank - axis_count; ++j) {
    // Dim s is the j-th remaining dim if s - j axes are in [0, s] and no earlier dim qualifies.
    sym::Expr size = shape[static_cast<size_t>(j + axis_count)];
    for (int64_t s = j + axis_count - 1; s >= j; --s)
      size = sym::select(sym::eq(before(axes, s + 1), s - j), shape[static_cast<size_t>(s)], size);
    out.push_back(size);
  }
  return out;
}

Shape between_ones(const Shape& shape, const Axes& axes) {
  const auto axis_count = static_cast<int64_t>(axes.at.size()), rank = static_cast<int64_t>(shape.size());
  STRIDEC_CHECK(rank + axis_count == axes.rank);
  Shape out;
  for (int64_t d = 0; d < axes.rank; ++d) {
    const sym::Expr skipped = before(axes, d);
    sym::Expr size = 1;
    for (int64_t n = std::max<int64_t>(0, d - rank + 1); n <= std::min(axis_count, d); ++n)
      size = sym::select(sym::eq(skipped, n), shape[static_cast<size_t>(d - n)], size);
    out.push_back(sym::select(axes.has(d), 1, size));
  }
  return out;
}

Term apart(Term x, const Axes& axes) {
  Shape split;
  Dims order(static_cast<size_t>(2 * axes.rank));
  for (int64_t d = 0; d < axes.rank; ++d) {
    split.push_back(sym::select(axes.has(d), 1, x.dim(d)));
    split.push_back(sym::select(axes.has(d), x.dim(d), 1));
    order[static_cast<size_t>(d)] = 2 * d;
    order[static_cast<size_t>(d + axes.rank)] = 2 * d + 1;
  }
  for (int64_t d = axes.rank; d < x.rank(); ++d) {
    split.push_back(x.dim(d));
    order.push_back(d + axes.rank);
  }
  return permute(reshape(x, split), order);
}

Term together(Term parts, const Axes& axes) {
  Shape joined;
  Dims order;
  for (int64_t d = 0; d < axes.rank; ++d) {
    joined.push_back(parts.dim(d) * parts.dim(d + axes.rank));
    order.insert(order.end(), {d, d + axes.rank});
  }
  for (int64_t d = 2 * axes.rank; d < parts.rank(); ++d) {
    joined.push_back(parts.dim(d));
    order.push_back(d);
  }
  return reshape(permute(parts, order), joined);
}

}  // namespace stridec::ops

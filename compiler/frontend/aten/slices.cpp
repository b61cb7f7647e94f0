#include "compiler/frontend/aten/slices.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

// Ends larger than any size stand for "to the end".
constexpr int64_t kToTheEnd = int64_t{1} << 62;

sym::Expr clamped(Builder& b, sym::Expr size, sym::Expr bound) {
  if (bound.is_const() && bound.value() >= kToTheEnd) return size;
  sym::Expr at = bound;
  if (b.holds(sym::lt(bound, 0)))
    at = bound + size;
  else if (!b.holds(sym::ge(bound, 0)))
    at = sym::select(sym::lt(bound, 0), bound + size, bound);
  if (!b.holds(sym::ge(at, 0))) at = sym::max(at, 0);
  if (!b.holds(sym::le(at, size))) at = sym::min(at, size);
  return b.simplify(at);
}

}  // namespace

Slice python_slice(Builder& b, sym::Expr size, std::optional<sym::Expr> start, std::optional<sym::Expr> end,
                   int64_t step) {
  const sym::Expr first = start ? clamped(b, size, *start) : sym::Expr(0);
  const sym::Expr last = end ? clamped(b, size, *end) : size;
  sym::Expr extent = last - first;
  if (!b.holds(sym::ge(extent, 0))) extent = sym::max(extent, 0);
  if (step != 1) extent = sym::ceildiv(extent, step);
  return {.start = first, .extent = b.simplify(extent), .step = step};
}

sym::Expr python_index(Builder& b, sym::Expr size, sym::Expr index) {
  b.require(sym::logical_and(sym::ge(index, -size), sym::lt(index, size)),
            "index {0} is outside a dim of size {1}", {index, size});
  if (b.holds(sym::ge(index, 0))) return index;
  if (b.holds(sym::lt(index, 0))) return b.simplify(index + size);
  return b.simplify(sym::select(sym::lt(index, 0), index + size, index));
}

Term replace_slice(Term base, int64_t dim, const Slice& s, Term value) {
  Builder& b = base.builder();
  const sym::Expr size = base.dim(dim);
  if (s.step != 1) {
    const Term position = ops::positions_along(b, s.extent, dim, base.rank()) * static_cast<double>(s.step) +
                          ops::size_as(b, DType::kI64, s.start);
    return ops::scatter_elements(base, ops::expand(position, value.shape()), value, dim);
  }
  const sym::Expr end = b.simplify(s.start + s.extent), rest = b.simplify(size - end);
  std::vector<Term> parts;
  if (!s.start.is_const(0)) parts.push_back(ops::slice(base, dim, 0, s.start));
  parts.push_back(value);
  if (!rest.is_const(0)) parts.push_back(ops::slice(base, dim, end, rest));
  return parts.size() == 1 ? value : ops::concat(parts, dim);
}

Tensor slice_view(const Tensor& t, int64_t dim, const Slice& s) {
  return view_of(
      t, [=](Term base) { return ops::slice(base, dim, s.start, s.extent, s.step); },
      [=](Term base, Term value) { return replace_slice(base, dim, s, value); });
}

Tensor select_view(const Tensor& t, int64_t dim, sym::Expr index) {
  return view_of(
      t, [=](Term base) { return ops::squeeze(ops::slice(base, dim, index, 1), {dim}); },
      [=](Term base, Term value) {
        return replace_slice(base, dim, {.start = index, .extent = 1}, ops::unsqueeze(value, {dim}));
      });
}

Tensor strided_view(const Tensor& memory, const Shape& sizes, const Shape& strides,
                    const std::function<Term(Term memory)>& first) {
  return view_of(memory, [=](Term of) {
    Builder& b = of.builder();
    Term at = ops::filled(b, sizes, DType::kI64, 0);
    at = at + first(of);
    for (size_t d = 0; d < sizes.size(); ++d)
      at = at + ops::index_along(b, sizes, static_cast<int64_t>(d), DType::kI64) *
                    ops::size_as(b, DType::kI64, strides[d]);
    return ops::gather(ops::reshape(of, {ops::count(of.shape())}), at, 0);
  });
}

}  // namespace stridec::aten

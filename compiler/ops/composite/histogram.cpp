#include "compiler/ops/composite/histogram.h"

#include <limits>

#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::Builder;
using graph::OpKind;
using graph::Shape;

Bounds bounds_of(Term x) { return {reduce_min(x, {0}), reduce_max(x, {0})}; }

Bounds apart(const Bounds& bounds, double margin) {
  const Term same = equal(bounds.low, bounds.high);
  return {select(same, bounds.low - margin, bounds.low), select(same, bounds.high + margin, bounds.high)};
}

// From the nearer bound, as PyTorch's linspace().
Term edges_between(const Bounds& bounds, int64_t bins) {
  Builder& b = bounds.low.builder();
  const Term i = index_along(b, {bins + 1}, 0, bounds.low.dtype());
  const Term step = (bounds.high - bounds.low) / static_cast<double>(bins);
  const Term from_high = bounds.high - step * subtract_from(static_cast<double>(bins), i);
  return select(less(i, static_cast<double>((bins + 1) / 2)), bounds.low + step * i, from_high);
}

namespace {

// The number of elements in each of `cells`; -1 is no cell.
Term counted(Term at, const sym::Expr& cells, std::optional<Term> weight, DType dtype) {
  Builder& b = at.builder();
  const Term ones = filled(b, at.shape(), dtype, 1);
  // What is in no cell is added to a last one, which is dropped.
  const Term none = size_as(b, DType::kI64, cells), place = select(less(at, 0), expand(none, at.shape()), at);
  const Term zeros = filled(b, {b.simplify(cells + 1)}, dtype, 0);
  return slice(scatter_elements(zeros, place, weight ? *weight : ones, 0, "add"), 0, 0, cells);
}

}  // namespace

Term equal_bins(Term x, const Bounds& bounds, int64_t bins) {
  const Term width = bounds.high - bounds.low;
  const Term scaled = apply(OpKind::kFloor, (x - bounds.low) * static_cast<double>(bins) / width);
  const Term bin = minimum(scaled, static_cast<double>(bins - 1));
  const Term inside = logical_and(greater_equal(x, bounds.low), less_equal(x, bounds.high));
  const Term at = cast(select(inside, bin, -1), DType::kI64, false);
  return counted(at, bins, std::nullopt, DType::kI64);
}

Term histogram(const std::vector<Term>& columns, const std::vector<Term>& edges, std::optional<Term> weight,
               bool density) {
  Builder& b = columns.at(0).builder();
  const DType dtype = columns[0].dtype();
  Shape shape;
  std::optional<Term> cell, inside, volume;
  for (size_t d = 0; d < columns.size(); ++d) {
    const Term x = columns[d], e = edges[d];
    const sym::Expr bins = b.simplify(e.dim(0) - 1);
    const Term last = slice(e, 0, bins, 1), first = slice(e, 0, 0, 1);
    // A number at the last edge is in the last bin.
    const Term bin = select(equal(x, last), size_as(b, DType::kI64, bins), search_sorted(e, x, true)) - 1.0;
    const Term within = logical_and(greater_equal(x, first), less_equal(x, last));
    const Term width = slice(e, 0, 1, bins) - slice(e, 0, 0, bins);
    cell = cell ? *cell * size_as(b, DType::kI64, bins) + bin : bin;
    inside = inside ? logical_and(*inside, within) : within;
    volume = volume ? unsqueeze(*volume, {volume->rank()}) * width : width;
    shape.push_back(bins);
  }
  const Term at = select(*inside, *cell, number(b, DType::kI64, -1));
  const Term out = reshape(counted(at, count(shape), weight, dtype), shape);
  if (!density) return out;
  return out / reduce_sum(out, all_dims(out.rank())) / *volume;
}

Term segments(Term x, Term starts, Term ends, int64_t dim, SegmentReduction how,
              std::optional<double> initial) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Builder& b = x.builder();
  // As [outer, segments, n, inner], of which the elements outside of a segment do not count.
  const Shape& shape = x.shape();
  const sym::Expr outer = count(shape, 0, dim), n = shape[static_cast<size_t>(dim)],
                  inner = count(shape, dim + 1, x.rank()), each = starts.dim(dim);
  const auto spread = [&](Term t) { return reshape(t, {outer, each, 1, 1}); };
  const Term i = index_along(b, {1, 1, n, 1}, 2, DType::kI64);
  const Term mine = logical_and(greater_equal(i, spread(starts)), less(i, spread(ends)));
  const double neutral = how == SegmentReduction::kMax    ? -kInf
                         : how == SegmentReduction::kMin  ? kInf
                         : how == SegmentReduction::kProd ? 1
                                                          : 0;
  const Term data = reshape(x, {outer, 1, n, inner});
  const Shape all{outer, each, n, inner};
  const Term kept = select(expand(mine, all), expand(data, all), number_like(x, neutral));
  const Term start = number_like(x, initial.value_or(neutral));
  const auto result = [&] {
    switch (how) {
      case SegmentReduction::kMax: return maximum(reduce_max(kept, {2}), start);
      case SegmentReduction::kMin: return minimum(reduce_min(kept, {2}), start);
      case SegmentReduction::kProd: return reduce(OpKind::kReduceProd, kept, {2}) * start;
      default: return reduce_sum(kept, {2}) + start;
    }
  };
  Term out = result();
  if (how == SegmentReduction::kMean) {
    const Term length = reshape(cast(ends - starts, x.dtype(), false), {outer, each, 1});
    const Term divisor = initial ? maximum(length, 1) : length;
    out = out / divisor;
  }
  Shape to(shape.begin(), shape.end());
  to[static_cast<size_t>(dim)] = each;
  return reshape(out, to);
}

}  // namespace stridec::ops

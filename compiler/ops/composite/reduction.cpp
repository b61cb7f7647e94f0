#include "compiler/ops/composite/reduction.h"

#include <algorithm>

#include "compiler/ops/name_size.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

Term widest(Term x) { return is_float(x.dtype()) ? widen(x) : cast(x, DType::kF64); }

}  // namespace

Term max_along(Term x, const Dims& dims, bool keep) {
  return reduce(is_bool(x.dtype()) ? OpKind::kReduceOr : OpKind::kReduceMax, x, dims, keep);
}
Term min_along(Term x, const Dims& dims, bool keep) {
  return reduce(is_bool(x.dtype()) ? OpKind::kReduceAnd : OpKind::kReduceMin, x, dims, keep);
}
Term product_along(Term x, const Dims& dims, bool keep) {
  return reduce(is_bool(x.dtype()) ? OpKind::kReduceAnd : OpKind::kReduceProd, x, dims, keep);
}
Term mean_along(Term x, const Dims& dims, bool keep) {
  return cast(reduce_mean(widen(x), dims, keep), x.dtype());
}
Term l1_norm(Term x, const Dims& dims, bool keep) { return reduce_sum(abs(x), dims, keep); }
Term l2_norm(Term x, const Dims& dims, bool keep) {
  return cast(sqrt(reduce_sum(square(widest(x)), dims, keep)), x.dtype());
}
Term log_sum(Term x, const Dims& dims, bool keep) {
  return cast(log(reduce_sum(widest(x), dims, keep)), x.dtype());
}
Term log_sum_exp(Term x, const Dims& dims, bool keep) {
  if (dims.empty()) return x;
  // Subtract the maximum if it is finite.
  const Term w = widest(x), top = stop_gradient(reduce_max(w, dims, kKeep));
  const Term shift = select(apply(OpKind::kIsInf, top), 0, top);
  const Term sum = log(reduce_sum(exp(w - shift), dims, kKeep)) + shift;
  return cast(keep ? sum : squeeze(sum, dims), x.dtype());
}
Term sum_square(Term x, const Dims& dims, bool keep) { return reduce_sum(square(x), dims, keep); }

Term reduce_axes(Term x, const Axes& axes, bool keep, Reduction along) {
  if (std::optional<Dims> dims = axes.known()) {
    std::sort(dims->begin(), dims->end());
    return along(x, *dims, keep);
  }
  Dims taken;
  for (int64_t d = 0; d < x.rank(); ++d) taken.push_back(d + x.rank());
  const Term reduced = along(apart(x, axes), taken, false);
  return keep ? reduced : reshape(reduced, named(x.builder(), without(x.shape(), axes), "size"));
}

Term scan_axis(Term x, const Axes& axis, const ScanOptions& options) {
  const auto along = [&](Term t, int64_t dim) {
    return options.kind == Scan::kSum ? cumulative_sum(t, dim, options.exclusive, options.reverse)
                                      : cumulative_product(t, dim, options.exclusive, options.reverse);
  };
  if (const auto known = axis.known()) return along(x, known->at(0));
  const Term parts = apart(x, axis);
  Shape rows(parts.shape().begin(), parts.shape().begin() + x.rank());
  rows.push_back(axis.pick_size(x.shape()));
  return together(reshape(along(reshape(parts, rows), x.rank()), parts.shape()), axis);
}

}  // namespace stridec::ops

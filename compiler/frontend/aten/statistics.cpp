// Order statistics, and scans that are neither sums nor products.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/order.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// The dim named, or the whole tensor as one dim.
struct Along {
  Term x;
  int64_t dim;
  bool keep;
};
Along along(Context& c, Term x) {
  if (!c.names("dim") || !c.has("dim")) return {reshape(x, {count(x.shape())}), 0, false};
  const bool keep = c.names("keepdim") && c.flag("keepdim");
  if (x.rank() == 0) return {reshape(x, {1}), 0, false};
  return {x, c.dim("dim", x.rank()), keep};
}
Results picked(const Along& a, const Picked& p) {
  if (!a.keep) return {p.values, p.indices};
  return {unsqueeze(p.values, {a.dim}), unsqueeze(p.indices, {a.dim})};
}

template <bool skip_nan>
Results median(Context& c) {
  const Along a = along(c, c.in("self"));
  return picked(a, ops::median(a.x, a.dim, skip_nan));
}
Results kthvalue(Context& c) {
  const Along a = along(c, c.in("self"));
  return picked(a, kth_value(a.x, a.dim, c.size("k")));
}
Results mode(Context& c) {
  const Along a = along(c, c.in("self"));
  return picked(a, ops::mode(a.x, a.dim));
}

Interpolation interpolation(const Context& c) {
  const std::string how = c.text("interpolation");
  if (how == "linear") return Interpolation::kLinear;
  if (how == "lower") return Interpolation::kLower;
  if (how == "higher") return Interpolation::kHigher;
  if (how == "midpoint") return Interpolation::kMidpoint;
  if (how == "nearest") return Interpolation::kNearest;
  c.does_not_fit(cat("interpolation '", how, "'"));
}
template <bool skip_nan>
Results quantile(Context& c) {
  const Term x = c.in("self"), q = cast(as_term(c.b, c.arg("q")), x.dtype(), false);
  const Along a = along(c, x);
  const Term out = ops::quantile(a.x, q, a.dim, interpolation(c), skip_nan);
  if (!c.flag("keepdim") || x.rank() == 0) return {out};
  if (c.has("dim")) return {unsqueeze(out, {a.dim + q.rank()})};
  Shape shape = q.shape();
  shape.resize(shape.size() + x.shape().size(), 1);
  return {reshape(out, shape)};
}

template <bool largest>
Results cumulative(Context& c) {
  const Term x = c.in("self");
  if (x.rank() == 0) return {x, filled(c.b, {}, DType::kI64, 0)};
  const Picked p = cumulative_extreme(x, c.dim("dim", x.rank()), largest);
  return {p.values, p.indices};
}
Results logcumsumexp(Context& c) {
  const Term x = c.in("self");
  return {x.rank() == 0 ? x : log_cumulative_sum_exp(x, c.dim("dim", x.rank()))};
}

// The area under y along dim, by trapezoids, and the running area.
template <bool running>
Results trapezoid(Context& c) {
  Term y = c.in("y");
  if (!is_float(y.dtype())) y = cast(y, DType::kF32, false);
  const int64_t dim = c.dim("dim", y.rank());
  const sym::Expr n = c.b.simplify(y.dim(dim) - 1);
  if (y.dim(dim).is_const(0)) c.unsupported("trapezoids of no points");
  const Term sums = slice(y, dim, 1, n) + slice(y, dim, 0, n);
  Term areas = sums * 0.5;
  if (c.names("x")) {
    Term x = cast(c.in("x"), y.dtype(), false);
    const int64_t axis = x.rank() == 1 ? 0 : dim;
    Term steps = slice(x, axis, 1, n) - slice(x, axis, 0, n);
    if (x.rank() == 1) steps = along_dim(steps, dim, y.rank());
    areas = areas * steps;
  } else {
    areas = areas * c.scalar("dx", y.dtype());
  }
  const DType to = y.dtype();
  if (!running) return {cast(reduce_sum(widen(areas), {dim}), to, false)};
  return {cast(cumulative_sum(widen(areas), dim), to, false)};
}

// The mean of the numbers.
Results nanmean(Context& c) {
  const Term x = c.in("self");
  if (!is_float(x.dtype())) c.does_not_fit("nanmean takes floats");
  const Dims dims = c.dims("dim", x.rank());
  const Term nan = apply(OpKind::kIsNan, x), w = widen(x);
  if (x.rank() == 0) return {x};
  const Term n = reduce_sum(cast(logical_not(nan), w.dtype(), false), dims, c.flag("keepdim"));
  return {cast(reduce_sum(select(nan, 0, w), dims, c.flag("keepdim")) / n, x.dtype(), false)};
}

constexpr Row kRows[] = {
    {"cummax", cumulative<true>},
    {"cummin", cumulative<false>},
    {"cumulative_trapezoid", trapezoid<true>},
    {"kthvalue", kthvalue},
    {"logcumsumexp", logcumsumexp},
    {"median", median<false>},
    {"mode", mode},
    {"nanmean", nanmean},
    {"nanmedian", median<true>},
    {"nanquantile", quantile<true>},
    {"quantile", quantile<false>},
    {"trapezoid", trapezoid<false>},
    {"trapz", trapezoid<false>},
};

}  // namespace

std::span<const Row> statistics_rows() { return kRows; }

}  // namespace stridec::aten

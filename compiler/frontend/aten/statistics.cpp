// Order statistics, scans that are neither sums nor products, and difference quotients.
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

// Distances a and b of a point from the one before and the one after, shaped to broadcast over the points.
struct Steps {
  Term a, b;
};
// The derivative of the parabola through y0, y1 and y2 at the first, the middle and the last point.
Term at_first(const Steps& s, Term y0, Term y1, Term y2) {
  const Term both = s.a + s.b;
  return y1 * (both / (s.a * s.b)) - y0 * ((s.a + both) / (s.a * both)) - y2 * (s.a / (s.b * both));
}
Term at_middle(const Steps& s, Term y0, Term y1, Term y2) {
  const Term both = s.a + s.b;
  return y2 * (s.a / (s.b * both)) + y1 * ((s.b - s.a) / (s.a * s.b)) - y0 * (s.b / (s.a * both));
}
Term at_last(const Steps& s, Term y0, Term y1, Term y2) {
  const Term both = s.a + s.b;
  return y2 * ((both + s.b) / (s.b * both)) - y1 * (both / (s.a * s.b)) + y0 * (s.b / (s.a * both));
}
// torch.gradient along one dim: steps are distances of neighbours, [n - 1].
Term difference_quotients(Context& c, Term y, int64_t dim, Term steps) {
  const sym::Expr n = y.dim(dim);
  const int64_t order = c.integer("edge_order");
  if (order != 1 && order != 2) c.does_not_fit(cat("edge_order ", order, ", which is 1 or 2"));
  c.b.require(sym::le(order + 1, n), "gradient: a dim of size {0} is too short", {n});
  const Term h = along_dim(steps, dim, y.rank());
  const auto points = [&](sym::Expr from, sym::Expr count) { return slice(y, dim, from, count); };
  const auto distances = [&](sym::Expr from, sym::Expr count) { return slice(h, dim, from, count); };
  const sym::Expr inner = c.b.simplify(n - 2), last = c.b.simplify(n - 1), third = c.b.simplify(n - 3);
  const Term middle = at_middle({distances(0, inner), distances(1, inner)}, points(0, inner),
                                points(1, inner), points(2, inner));
  if (order == 1)
    return concat({(points(1, 1) - points(0, 1)) / distances(0, 1), middle,
                   (points(last, 1) - points(inner, 1)) / distances(inner, 1)},
                  dim);
  return concat(
      {at_first({distances(0, 1), distances(1, 1)}, points(0, 1), points(1, 1), points(2, 1)), middle,
       at_last({distances(third, 1), distances(inner, 1)}, points(third, 1), points(inner, 1),
               points(last, 1))},
      dim);
}
Results gradient(Context& c) {
  const Term x = c.in("self"), y = widen(cast(x, float_type(x.dtype()), false));
  if (x.rank() == 0) c.unsupported("gradient of a scalar");
  Dims dims;
  if (c.has("dim") && c.arg("dim").kind != Value::Kind::kList)
    dims = {c.dim("dim", x.rank())};
  else if (c.has("dim"))
    dims = c.listed_dims("dim", x.rank());
  else
    for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d);
  const bool given = c.names("spacing") && c.has("spacing");
  const bool several = given && c.arg("spacing").kind == Value::Kind::kList;
  if (several && c.arg("spacing").items.size() != dims.size())
    c.does_not_fit("gradient takes a spacing for each dim");
  std::vector<Value> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    const sym::Expr left = c.b.simplify(x.dim(dims[i]) - 1);
    const Value spacing = several ? c.arg("spacing").items[i]
                          : given ? c.arg("spacing")
                                  : Value::number_of(1);
    Term steps = number(c.b, y.dtype(), 1);
    if (spacing.is_tensor() && as_term(c.b, spacing).rank() == 1) {
      const Term at = cast(as_term(c.b, spacing), y.dtype(), false);
      steps = slice(at, 0, 1, left) - slice(at, 0, 0, left);
    } else {
      steps = expand(spacing.is_tensor() ? cast(as_term(c.b, spacing), y.dtype(), false)
                                         : scalar_of(c.b, spacing, y.dtype()),
                     {left});
    }
    out.emplace_back(cast(difference_quotients(c, y, dims[i], steps), float_type(x.dtype()), false));
  }
  return {Value::list(std::move(out))};
}

constexpr Row kRows[] = {
    {"cummax", cumulative<true>},
    {"cummin", cumulative<false>},
    {"cumulative_trapezoid", trapezoid<true>},
    {"gradient", gradient},
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

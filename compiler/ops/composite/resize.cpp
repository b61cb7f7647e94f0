// Turns sizes and scales into the attributes of one resize node, or of one node per dim.
#include "compiler/ops/composite/resize.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// Continued fraction expansion; stops when the error is below float precision.
constexpr int kMostTerms = 40;
constexpr double kError = 1e-8, kLargestP = 1099511627776.0, kLargestQ = 16777216.0;

}  // namespace

Rational nearest_rational(double value) {
  double p0 = 0, q0 = 1, p1 = 1, q1 = 0, rest = value;  // all but `rest` are whole numbers
  for (int i = 0; i < kMostTerms; ++i) {
    const double whole = std::floor(rest), p2 = whole * p1 + p0, q2 = whole * q1 + q0;
    if (!(std::fabs(p2) <= kLargestP && q2 <= kLargestQ)) break;
    p0 = p1, q0 = q1, p1 = p2, q1 = q2;
    if (std::fabs(p1 / q1 - value) <= kError * std::fabs(value) || rest == whole) break;
    rest = 1 / (rest - whole);
  }
  return q1 == 0 ? Rational{0, 1} : Rational{static_cast<int64_t>(p1), static_cast<int64_t>(q1)};
}

Rationals nearest_rationals(Term values) {
  Builder& b = values.builder();
  const Term value = cast(values, DType::kF64);
  const auto start = [&](double n) { return filled(b, value.shape(), DType::kF64, n).id(); };
  const Term all = filled(b, value.shape(), DType::kBool, 1), any = filled(b, {}, DType::kBool, 1);
  const LoopResult result =
      loop(b, kMostTerms, any.id(), {start(0), start(1), start(1), start(0), value.id(), all.id()},
           [&](const LoopState& state) {
             const auto carried = [&](size_t i) { return Term(b, state.carried[i]); };
             const Term p0 = carried(0), q0 = carried(1), p1 = carried(2), q1 = carried(3), rest = carried(4);
             const Term whole = apply(OpKind::kFloor, rest), p2 = whole * p1 + p0, q2 = whole * q1 + q0;
             const Term taken = logical_and(
                 carried(5), logical_and(less_equal(abs(p2), kLargestP), less_equal(q2, kLargestQ)));
             const Term p = select(taken, p2, p1), q = select(taken, q2, q1);
             const Term close = less_equal(abs(p / q - value), abs(value) * kError);
             const Term more = logical_and(taken, logical_not(logical_or(close, equal(rest, whole))));
             return LoopStep{.condition = reduce(OpKind::kReduceOr, more, {0}).id(),
                             .carried = {select(taken, p1, p0).id(), select(taken, q1, q0).id(), p.id(),
                                         q.id(), divide_into(1, rest - whole).id(), more.id()},
                             .stacked = {}};
           });
  const Term p(b, result.carried[2]), q(b, result.carried[3]), none = equal(q, 0);
  return {cast(select(none, 0, p), DType::kI64), cast(select(none, 1, q), DType::kI64)};
}

namespace {

constexpr int64_t kMostScale = 1'000'000'000;  // with a larger scale, sizes may not fit in 64 bits

}  // namespace

std::vector<ResizeAxis> axes_from_scales(Term x, const Dims& dims, const std::vector<Scale>& scales) {
  graph::Builder& b = x.builder();
  if (scales.size() != dims.size()) does_not_fit(cat(scales.size(), " scales for ", dims.size(), " dims"));
  std::vector<ResizeAxis> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto& [p, q] = scales[i];
    b.require(sym::logical_and(sym::ge(p, 1), sym::le(p, kMostScale * q)),
              cat("scale ", i, " is not a positive number, too small, or larger than sizes may become"));
    const sym::Expr size = x.dim(dims[i]);
    out.push_back(
        {.dim = dims[i], .in = size, .out = b.simplify(sym::floordiv(size * p, q)), .scale = Scale{p, q}});
  }
  return out;
}

// Replaces the sizes by one scale for all dims, the smallest or the largest of their scales.
void keep_aspect_ratio(graph::Builder& b, std::vector<ResizeAxis>& axes, bool not_larger) {
  std::optional<Scale> best;
  for (const ResizeAxis& a : axes) {
    const Scale scale{a.out, a.in};
    if (!best) {
      best = scale;
      continue;
    }
    const sym::Expr smaller = sym::lt(scale.p * best->q, best->p * scale.q);
    const auto pick = [&](sym::Expr x, sym::Expr y) {
      return b.simplify(not_larger ? sym::select(smaller, x, y) : sym::select(smaller, y, x));
    };
    best = Scale{pick(scale.p, best->p), pick(scale.q, best->q)};
  }
  for (ResizeAxis& a : axes) {
    a.scale = best;
    a.out = b.simplify(sym::floordiv(2 * a.in * best->p + best->q, 2 * best->q));  // rounded
  }
}

Term resize(Term x, std::vector<ResizeAxis> axes, ResizeOptions o) {
  if (o.coordinates == "tf_half_pixel_for_nn") {  // floor((i + 0.5) / scale)
    if (o.mode != "nearest" || o.nearest != "floor")
      fail(ErrorKind::kUnsupported, "unsupported",
           "tf_half_pixel_for_nn is supported with nearest_mode floor alone");
    o.coordinates = "half_pixel";
    o.nearest = "round_prefer_ceil";
  }
  if (o.coordinates != "tf_crop_and_resize")
    std::erase_if(
        axes, [](const ResizeAxis& a) { return a.in == a.out && (!a.scale || a.scale->p == a.scale->q); });
  if (axes.empty()) return x;
  graph::Builder& b = x.builder();
  // Resize one dim at a time in two cases. Scales known only at run time: most of them will be 1, and a
  // single dim has few taps. Many taps: their number adds up over the dims instead of multiplying.
  const bool by_dim = o.mode != "nearest" && std::any_of(axes.begin(), axes.end(), [&](const ResizeAxis& a) {
                        return b.is_bound_in_run(a.scale ? a.scale->p : a.out);
                      });
  const bool many_taps = (o.mode == "cubic" || (o.antialias && o.mode == "linear")) &&
                         o.coordinates != "tf_crop_and_resize" && is_float(x.dtype());
  if ((by_dim || many_taps) && axes.size() > 1) {
    Term y = x.dtype() == DType::kF64 ? x : cast(x, DType::kF32);
    for (size_t i = 0; i < axes.size(); ++i) {
      ResizeOptions one = o;
      if (!o.roi.empty()) one.roi = {o.roi[i], o.roi[axes.size() + i]};
      y = resize(y, {axes[i]}, one);
    }
    return cast(y, x.dtype());
  }
  Dims dims;
  graph::Shape sizes, p, q;
  for (const ResizeAxis& a : axes) {
    dims.push_back(a.dim);
    sizes.push_back(a.out);
    p.push_back(a.scale ? a.scale->p : a.out);
    q.push_back(a.scale ? a.scale->q : a.in);
  }
  graph::Attributes attributes{{"dims", dims},
                               {"sizes", sizes},
                               {"scale_p", p},
                               {"scale_q", q},
                               {"mode", o.mode},
                               {"coordinate", o.coordinates},
                               {"nearest", o.nearest},
                               {"cubic_a", o.cubic_a},
                               {"exclude_outside", int64_t{o.exclude_outside}},
                               {"antialias", int64_t{o.antialias}},
                               {"extrapolation", o.extrapolation},
                               {"sparse", int64_t{by_dim}}};
  if (!o.roi.empty()) {
    graph::Shape roi_p, roi_q;
    for (const Scale& edge : o.roi) {
      roi_p.push_back(edge.p);
      roi_q.push_back(edge.q);
    }
    attributes.set("roi_p", std::move(roi_p));
    attributes.set("roi_q", std::move(roi_q));
  }
  return {b, b.add1(graph::OpKind::kResize, {x.id()}, std::move(attributes))};
}

}  // namespace stridec::ops

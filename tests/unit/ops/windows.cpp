#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/ops/composite/resize.h"
#include "compiler/ops/helpers.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

namespace {

struct Pool {
  std::vector<int64_t> x, window, strides, dilations, before, after, extra;
};

graph::Attributes attributes(const Pool& p) {
  auto exprs = [](const std::vector<int64_t>& v) { return std::vector<sym::Expr>(v.begin(), v.end()); };
  return {{"window", exprs(p.window)}, {"strides", p.strides},    {"dilations", p.dilations},
          {"before", exprs(p.before)}, {"after", exprs(p.after)}, {"extra", exprs(p.extra)}};
}

// Computes each output from its window elements: position in the input (dims after the leading two), and
// whether it is inside.
HostTensor pooled(const Pool& p, DType dtype,
                  const std::function<double(const At& o, const std::vector<std::pair<At, int>>&)>& f) {
  std::vector<int64_t> shape{p.x[0], p.x[1]};
  const size_t n = p.window.size();
  for (size_t i = 0; i < n; ++i)
    shape.push_back(
        (p.x[2 + i] + p.before[i] + p.after[i] + p.extra[i] - (p.window[i] - 1) * p.dilations[i] - 1) /
            p.strides[i] +
        1);
  return compute(dtype, shape, [&](const At& o) {
    std::vector<std::pair<At, int>> elements;  // 0: input, 1: padding, 2: beyond the padding
    for_each(p.window, [&](const At& k) {
      At where{o[0], o[1]};
      int kind = 0;
      for (size_t i = 0; i < n; ++i) {
        where.push_back(o[2 + i] * p.strides[i] + k[i] * p.dilations[i] - p.before[i]);
        if (where.back() < 0 || where.back() >= p.x[2 + i]) kind = std::max(kind, 1);
        if (where.back() >= p.x[2 + i] + p.after[i]) kind = 2;
      }
      elements.emplace_back(where, kind);
    });
    return f(o, elements);
  });
}

}  // namespace

TEST_CASE("pooling: max, sum, average, argmax") {
  const std::vector<Pool> pools = {
      {{2, 3, 7}, {3}, {2}, {1}, {1}, {1}, {0}},
      {{1, 2, 5, 6}, {3, 2}, {2, 2}, {1, 1}, {1, 0}, {1, 0}, {1, 1}},
      {{1, 2, 6, 6}, {2, 3}, {1, 2}, {2, 1}, {0, 1}, {0, 1}, {0, 0}},
      {{1, 1, 4, 4, 3}, {2, 2, 2}, {2, 1, 1}, {1, 1, 1}, {0, 0, 1}, {0, 0, 0}, {0, 0, 0}},
      {{0, 2, 4}, {2}, {2}, {1}, {0}, {0}, {0}},
      // Separable extrema.
      {{2, 1, 7, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 0}, {0, 1}},
      {{1, 2, 6, 8}, {5, 4}, {1, 1}, {1, 2}, {2, 3}, {2, 0}, {0, 0}},
      {{1, 1, 5, 4, 6}, {3, 2, 3}, {1, 1, 2}, {1, 1, 1}, {1, 0, 1}, {0, 1, 1}, {0, 0, 0}},
  };
  for (const Pool& p : pools)
    for (DType dtype : {DType::kF32, DType::kF16, DType::kI8}) {
      const HostTensor x = sample(dtype, p.x);
      graph::Attributes max = attributes(p), sum = max;
      max.set("kind", std::string("max"));
      sum.set("kind", std::string("sum"));
      auto value = [&](const std::pair<At, int>& e, double otherwise) {
        return e.second == 0 ? at(x, e.first) : otherwise;
      };
      const double least = is_float(dtype) ? -std::numeric_limits<double>::infinity() : -128;
      check({.name = "max, sum",
             .inputs = {x},
             .build =
                 [max, sum](Builder& b, const Ids& in) {
                   return Ids{b.add1(OpKind::kReduceWindow, {in[0]}, max),
                              b.add1(OpKind::kReduceWindow, {in[0]}, sum)};
                 },
             .expected = {pooled(p, dtype,
                                 [&](const At&, const auto& elements) {
                                   double best = least;
                                   for (const auto& e : elements) best = std::max(best, value(e, least));
                                   return best;
                                 }),
                          pooled(p, dtype,
                                 [&](const At&, const auto& elements) {
                                   double total = 0;
                                   for (const auto& e : elements) total += value(e, 0);
                                   return total;
                                 })},
             .tolerance = dtype == DType::kF16 ? 0.02 : -1});
      const Pool q = p;
      check(
          {.name = "argmax",
           .inputs = {x},
           .build = [q](Builder& b,
                        const Ids& in) { return Ids{b.add1(OpKind::kWindowArgMax, {in[0]}, attributes(q))}; },
           .expected = {pooled(p, DType::kI64, [&](const At&, const auto& elements) {
             double best = -std::numeric_limits<double>::infinity();
             int64_t index = 0;
             for (const auto& e : elements) {
               if (e.second != 0 || at(x, e.first) <= best) continue;
               best = at(x, e.first);
               index = 0;
               for (size_t d = 2; d < e.first.size(); ++d) index = index * p.x[d] + e.first[d];
             }
             return double(index);
           })}});
      if (!is_float(dtype)) continue;
      for (int64_t include : {0, 1})
        check({.name = cat("average, padding counts: ", include),
               .inputs = {x},
               .build =
                   [q, include](Builder& b, const Ids& in) {
                     graph::Attributes a = attributes(q);
                     a.set("count_include_pad", include);
                     return Ids{b.add1(OpKind::kAveragePool, {in[0]}, a)};
                   },
               .expected = {pooled(p, dtype, [&](const At&, const auto& elements) {
                 double total = 0, count = 0;
                 for (const auto& e : elements) total += value(e, 0), count += e.second <= include;
                 return total / count;
               })}});
    }
}

namespace {

struct Resize {
  std::string mode, coordinate, nearest = "round_prefer_floor";
  int64_t in, out;
  double scale;  // 0: out / in
  bool exclude = false, antialias = false;
};

// One dim, transcribed from the operator's reference implementation.
double resize_reference(const Resize& r, const std::vector<double>& x, int64_t o) {
  const double scale = r.scale > 0 ? r.scale : double(r.out) / double(r.in), n = double(r.in),
               width = scale * n;
  double at = 0;
  if (r.coordinate == "align_corners") at = width == 1 ? 0 : double(o) * (n - 1) / (width - 1);
  if (r.coordinate == "asymmetric") at = double(o) / scale;
  if (r.coordinate == "half_pixel") at = (double(o) + 0.5) / scale - 0.5;
  if (r.coordinate == "pytorch_half_pixel") at = r.out == 1 ? 0 : (double(o) + 0.5) / scale - 0.5;
  if (r.coordinate == "half_pixel_symmetric")
    at = n / 2 * (1 - double(r.out) / width) + (double(o) + 0.5) / scale - 0.5;
  at = std::nearbyint(at * 1e9) / 1e9;
  auto sample = [&](double i) { return x[size_t(std::min(std::max(i, 0.0), n - 1))]; };
  if (r.mode == "nearest") {
    if (r.nearest == "floor") return sample(std::floor(at));
    if (r.nearest == "ceil") return sample(std::ceil(at));
    return sample(r.nearest == "round_prefer_ceil" ? std::floor(at + 0.5) : std::ceil(at - 0.5));
  }
  const double stretch = r.antialias ? std::min(scale, 1.0) : 1;
  auto kernel = [&](double d) {
    d = std::fabs(d);
    const double a = -0.75;
    if (r.mode == "linear") return std::max(0.0, 1 - d);
    return d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
           : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
                   : 0;
  };
  double total = 0, weights = 0;
  const double reach = std::ceil((r.mode == "linear" ? 1 : 2) / stretch);
  for (double i = std::floor(at) - reach; i <= std::floor(at) + reach + 1; ++i) {
    const double w = r.exclude && (i < 0 || i >= n) ? 0 : kernel((i - at) * stretch);
    total += w * sample(i);
    weights += w;
  }
  return total / weights;
}

}  // namespace

TEST_CASE("resize in every mode and with every coordinate rule") {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* coordinate :
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"})
      for (const auto& [in, out, scale] : std::vector<std::tuple<int64_t, int64_t, double>>{{4, 8, 0.0},
                                                                                            {4, 8, 2.0},
                                                                                            {7, 3, 0.0},
                                                                                            {5, 1, 0.0},
                                                                                            {1, 4, 0.0},
                                                                                            {8, 4, 0.6},
                                                                                            {3, 3, 0.0},
                                                                                            {4, 9, 2.3}})
        for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
          for (int variant : {0, 1, 2}) {
            Resize r{.mode = mode,
                     .coordinate = coordinate,
                     .nearest = nearest,
                     .in = in,
                     .out = out,
                     .scale = scale};
            r.exclude = variant == 1;
            r.antialias = variant == 2;
            if (r.mode == "nearest" ? variant != 0 : r.nearest != "floor") continue;
            const HostTensor x = sample(DType::kF32, {2, in});
            check({.name = cat(mode, " ", coordinate, " ", nearest, " ", in, " to ", out, " scale ", scale,
                               " variant ", variant),
                   .inputs = {x},
                   .build =
                       [r](Builder& b, const Ids& in) {
                         graph::Attributes a{{"dims", std::vector<int64_t>{1}},
                                             {"sizes", std::vector<sym::Expr>{r.out}},
                                             {"mode", r.mode},
                                             {"coordinate", r.coordinate},
                                             {"nearest", r.nearest},
                                             {"exclude_outside", int64_t{r.exclude}},
                                             {"antialias", int64_t{r.antialias}}};
                         if (r.scale > 0) {
                           const ops::Rational scale = ops::nearest_rational(r.scale);
                           a.set("scale_p", std::vector<sym::Expr>{scale.p});
                           a.set("scale_q", std::vector<sym::Expr>{scale.q});
                         }
                         return Ids{b.add1(OpKind::kResize, {in[0]}, a)};
                       },
                   .expected = {compute(DType::kF32, {2, out},
                                        [&](const At& o) {
                                          std::vector<double> row;
                                          for (int64_t k = 0; k < in; ++k) row.push_back(at(x, {o[0], k}));
                                          return resize_reference(r, row, o[1]);
                                        })},
                   .tolerance = 1e-5});
          }
}

TEST_CASE("resize of several dims multiplies the kernels") {
  const HostTensor x = sample(DType::kF32, {1, 2, 3, 4});
  for (const char* mode : {"linear", "cubic"})
    for (int64_t antialias : {0, 1}) {
      const Resize rows{.mode = mode,
                        .coordinate = "half_pixel",
                        .in = 3,
                        .out = 5,
                        .scale = 0,
                        .antialias = antialias != 0};
      const Resize columns{.mode = mode,
                           .coordinate = "half_pixel",
                           .in = 4,
                           .out = 2,
                           .scale = 0,
                           .antialias = antialias != 0};
      const std::string m = mode;
      check({.name = m,
             .inputs = {x},
             .build =
                 [m, antialias](Builder& b, const Ids& in) {
                   return Ids{b.add1(OpKind::kResize, {in[0]},
                                     {{"dims", std::vector<int64_t>{2, 3}},
                                      {"sizes", std::vector<sym::Expr>{5, 2}},
                                      {"mode", m},
                                      {"coordinate", std::string("half_pixel")},
                                      {"antialias", antialias}})};
                 },
             .expected = {compute(DType::kF32, {1, 2, 5, 2},
                                  [&](const At& o) {
                                    std::vector<double> column;
                                    for (int64_t i = 0; i < 3; ++i) {
                                      std::vector<double> row;
                                      for (int64_t k = 0; k < 4; ++k)
                                        row.push_back(at(x, {o[0], o[1], i, k}));
                                      column.push_back(resize_reference(columns, row, o[3]));
                                    }
                                    return resize_reference(rows, column, o[2]);
                                  })},
             .tolerance = 1e-5});
    }
}

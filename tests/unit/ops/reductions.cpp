#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

namespace {

HostTensor reduced(const HostTensor& x, const std::vector<int64_t>& dims, double start,
                   const std::function<double(double, double)>& f) {
  auto dropped = [&](size_t d) { return std::find(dims.begin(), dims.end(), int64_t(d)) != dims.end(); };
  std::vector<int64_t> kept, inner;
  for (size_t d = 0; d < x.shape.size(); ++d) (dropped(d) ? inner : kept).push_back(x.shape[d]);
  return compute(x.dtype, kept, [&](const At& outer) {
    double total = start;
    for_each(inner, [&](const At& k) {
      At where;
      size_t a = 0, b = 0;
      for (size_t d = 0; d < x.shape.size(); ++d) where.push_back(dropped(d) ? k[a++] : outer[b++]);
      total = f(total, at(x, where));
    });
    return total;
  });
}

}  // namespace

TEST_CASE("reductions over any dims, empty ones too") {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI32, DType::kI64})
    for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 3, 4}, {2, 0, 4}, {1, 1, 1}})
      for (const auto& dims : std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {0, 2}, {0, 1, 2}}) {
        const HostTensor x = sample(dtype, shape);
        auto with = [&](OpKind kind, double start, auto f) {
          check(
              {.name = cat(graph::name(kind), " of ", name(dtype)),
               .inputs = {x},
               .build = [kind, dims](Builder& b,
                                     const Ids& in) { return Ids{b.add1(kind, {in[0]}, {{"dims", dims}})}; },
               .expected = {reduced(x, dims, start, f)},
               .tolerance = dtype == DType::kF16 ? 0.02 : -1});
        };
        with(OpKind::kReduceSum, 0, [](double p, double q) { return p + q; });
        if (dtype == DType::kF32 || dtype == DType::kF64)
          with(OpKind::kReduceProd, 1, [](double p, double q) { return p * q; });
        if (is_float(dtype))
          with(OpKind::kReduceMax, -inf, [](double p, double q) { return std::max(p, q); });
        if (is_float(dtype)) with(OpKind::kReduceMin, inf, [](double p, double q) { return std::min(p, q); });
      }
  const HostTensor f = sample(DType::kBool, {3, 4});
  check({.name = "and",
         .inputs = {f},
         .build =
             [](Builder& b, const Ids& in) {
               return Ids{b.add1(OpKind::kReduceAnd, {in[0]}, {{"dims", std::vector<int64_t>{1}}}),
                          b.add1(OpKind::kReduceOr, {in[0]}, {{"dims", std::vector<int64_t>{0}}})};
             },
         .expected = {reduced(f, {1}, 1, [](double p, double q) { return double(p != 0 && q != 0); }),
                      reduced(f, {0}, 0, [](double p, double q) { return double(p != 0 || q != 0); })}});
  const HostTensor x = sample(DType::kF32, {2, 5});
  check({.name = "mean",
         .inputs = {x},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::reduce_mean(b, in[0], {-1}, true)}; },
         .expected = {compute(DType::kF32, {2, 1}, [&](const At& i) {
           double total = 0;
           for (int64_t k = 0; k < 5; ++k) total += at(x, {i[0], k});
           return total / 5;
         })}});
}

TEST_CASE("argmax takes the first or the last of equals, and NaN wins") {
  const double nan = std::nan("");
  const HostTensor x = tensor(DType::kF32, {3, 4}, {1, 5, 5, 2, 0, nan, 9, nan, -1, -1, -2, -2});
  for (DType dtype : {DType::kF32, DType::kF16}) {
    const HostTensor typed = compute(dtype, x.shape, [&](const At& i) { return at(x, i); });
    auto arg = [&](OpKind kind, int64_t last, const std::vector<double>& want) {
      check({.name = cat(graph::name(kind), " last ", last),
             .inputs = {typed},
             .build =
                 [=](Builder& b, const Ids& in) {
                   return Ids{b.add1(kind, {in[0]}, {{"dim", int64_t{1}}, {"last", last}})};
                 },
             .expected = {tensor(DType::kI64, {3}, want)}});
    };
    arg(OpKind::kArgMax, 0, {1, 1, 0});
    arg(OpKind::kArgMax, 1, {2, 3, 1});
    arg(OpKind::kArgMin, 0, {0, 1, 2});
    arg(OpKind::kArgMin, 1, {0, 3, 3});
  }
  const Case empty{
      .name = "",
      .inputs = {sample(DType::kF32, {2, 0})},
      .build = [](Builder& b,
                  const Ids& in) { return Ids{b.add1(OpKind::kArgMax, {in[0]}, {{"dim", int64_t{1}}})}; },
      .expected = {}};
  CHECK(failure(empty, false) == "argmax: dim 1 has no elements to choose from");
  CHECK(failure(empty, true) == "argmax: dim 1 has no elements to choose from");
}

TEST_CASE("cumulative sums and products") {
  for (int64_t exclusive : {0, 1})
    for (int64_t reverse : {0, 1})
      for (int64_t dim : {0, 1}) {
        const HostTensor x = sample(DType::kF32, {3, 4});
        auto with = [&](OpKind kind, double start, auto f) {
          check({.name = cat(graph::name(kind), exclusive, reverse, dim),
                 .inputs = {x},
                 .build =
                     [=](Builder& b, const Ids& in) {
                       return Ids{b.add1(kind, {in[0]},
                                         {{"dim", dim}, {"exclusive", exclusive}, {"reverse", reverse}})};
                     },
                 .expected = {compute(DType::kF32, {3, 4}, [&](const At& i) {
                   double total = start;
                   const int64_t n = x.shape[size_t(dim)], here = i[size_t(dim)];
                   for (int64_t k = 0; k < n; ++k) {
                     const bool counts = reverse ? k > here || (k == here && !exclusive)
                                                 : k < here || (k == here && !exclusive);
                     At where = i;
                     where[size_t(dim)] = k;
                     if (counts) total = f(total, at(x, where));
                   }
                   return total;
                 })}});
        };
        with(OpKind::kCumSum, 0, [](double p, double q) { return p + q; });
        with(OpKind::kCumProd, 1, [](double p, double q) { return p * q; });
      }
}

TEST_CASE("sort and topk are stable, NaN is the largest") {
  const HostTensor x = tensor(DType::kF32, {2, 5}, {3, 1, 2, 1, 3, 0, std::nan(""), -1, 5, 0});
  check({.name = "sort",
         .inputs = {x},
         .build =
             [](Builder& b, const Ids& in) {
               return b.add(OpKind::kSort, {in[0]}, {{"dim", int64_t{1}}, {"descending", int64_t{0}}});
             },
         .expected = {tensor(DType::kF32, {2, 5}, {1, 1, 2, 3, 3, -1, 0, 0, 5, std::nan("")}),
                      tensor(DType::kI64, {2, 5}, {1, 3, 2, 0, 4, 2, 0, 4, 3, 1})}});
  check(
      {.name = "topk",
       .inputs = {x},
       .build =
           [](Builder& b, const Ids& in) {
             const ValueId t = ops::permute(b, in[0], {1, 0});
             return b.add(
                 OpKind::kTopK, {t},
                 {{"dim", int64_t{0}}, {"k", sym::Expr(2)}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}});
           },
       .expected = {tensor(DType::kF32, {2, 2}, {3, std::nan(""), 3, 5}),
                    tensor(DType::kI64, {2, 2}, {0, 1, 4, 3})}});
}

#include <doctest/doctest.h>

#include <cmath>

#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

namespace {

HostTensor matmul_reference(DType dtype, const HostTensor& x, const HostTensor& y) {
  HostTensor a = x, c = y;
  if (a.shape.size() == 1) a.shape.insert(a.shape.begin(), 1);
  if (c.shape.size() == 1) c.shape.push_back(1);
  const size_t ra = a.shape.size(), rc = c.shape.size();
  std::vector<int64_t> shape =
      broadcast({a.shape.begin(), a.shape.end() - 2}, {c.shape.begin(), c.shape.end() - 2});
  shape.push_back(a.shape[ra - 2]);
  shape.push_back(c.shape[rc - 1]);
  HostTensor out = compute(dtype, shape, [&](const At& i) {
    double total = 0;
    for (int64_t k = 0; k < a.shape[ra - 1]; ++k) {
      At p = i, q = i;
      p.back() = k;
      q[q.size() - 2] = k;
      total += at_broadcast(a, p) * at_broadcast(c, q);
    }
    return total;
  });
  if (y.shape.size() == 1) out.shape.pop_back();
  if (x.shape.size() == 1) out.shape.erase(out.shape.end() - (y.shape.size() == 1 ? 1 : 2));
  return out;
}

struct Conv {
  std::vector<int64_t> x, w, strides, dilations, before, after;
  int64_t groups;
};

graph::Attributes attributes(const Conv& c) {
  auto exprs = [](const std::vector<int64_t>& v) { return std::vector<sym::Expr>(v.begin(), v.end()); };
  return {{"strides", c.strides},
          {"dilations", c.dilations},
          {"before", exprs(c.before)},
          {"after", exprs(c.after)},
          {"groups", c.groups}};
}

HostTensor conv_reference(const Conv& c, const HostTensor& x, const HostTensor& w, DType to) {
  const size_t spatial = c.strides.size();
  std::vector<int64_t> shape{x.shape[0], w.shape[0]};
  for (size_t i = 0; i < spatial; ++i)
    shape.push_back((x.shape[2 + i] + c.before[i] + c.after[i] - (w.shape[2 + i] - 1) * c.dilations[i] - 1) /
                        c.strides[i] +
                    1);
  return compute(to, shape, [&](const At& o) {
    const int64_t per_out = w.shape[0] / c.groups, g = o[1] / per_out;
    double total = 0;
    for_each({w.shape.begin() + 1, w.shape.end()}, [&](const At& k) {
      At at_x{o[0], g * w.shape[1] + k[0]}, at_w{o[1], k[0]};
      for (size_t i = 0; i < spatial; ++i) {
        const int64_t p = o[2 + i] * c.strides[i] + k[1 + i] * c.dilations[i] - c.before[i];
        if (p < 0 || p >= x.shape[2 + i]) return;
        at_x.push_back(p);
        at_w.push_back(k[1 + i]);
      }
      total += at(x, at_x) * at(w, at_w);
    });
    return total;
  });
}

// By definition: every input element contributes to a window of the output.
HostTensor conv_transpose_reference(const Conv& c, const std::vector<int64_t>& extra, const HostTensor& x,
                                    const HostTensor& w) {
  const size_t spatial = c.strides.size();
  std::vector<int64_t> shape{x.shape[0], w.shape[1] * c.groups};
  for (size_t i = 0; i < spatial; ++i)
    shape.push_back((x.shape[2 + i] - 1) * c.strides[i] + (w.shape[2 + i] - 1) * c.dilations[i] + 1 +
                    extra[i] - c.before[i] - c.after[i]);
  std::vector<double> sums;
  HostTensor out = compute(DType::kF64, shape, [](const At&) { return 0.0; });
  for_each(x.shape, [&](const At& i) {
    const int64_t g = i[1] / (x.shape[1] / c.groups);
    for_each({w.shape.begin() + 1, w.shape.end()}, [&](const At& k) {
      At o{i[0], g * w.shape[1] + k[0]}, at_w{i[1], k[0]};
      for (size_t s = 0; s < spatial; ++s) {
        o.push_back(i[2 + s] * c.strides[s] + k[1 + s] * c.dilations[s] - c.before[s]);
        at_w.push_back(k[1 + s]);
        if (o.back() < 0 || o.back() >= shape[2 + s]) return;
      }
      int64_t flat = 0;
      for (size_t d = 0; d < o.size(); ++d) flat = flat * shape[d] + o[d];
      set_number(out, flat, get_number(out, flat) + at(x, i) * at(w, at_w));
    });
  });
  return compute(DType::kF32, shape, [&](const At& o) { return at(out, o); });
}

}  // namespace

TEST_CASE("matmul as numpy does it") {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> shapes = {
      {{3, 4}, {4, 5}},
      {{4}, {4, 5}},
      {{3, 4}, {4}},
      {{4}, {4}},
      {{2, 3, 4}, {4, 5}},
      {{2, 3, 4}, {2, 4, 5}},
      {{2, 1, 3, 4}, {5, 4, 2}},
      {{4}, {2, 4, 3}},
      {{0, 4}, {4, 5}},
      {{3, 0}, {0, 2}},
      {{1, 1}, {1, 1}},
      {{2, 3, 4}, {4}}};
  for (const auto& [p, q] : shapes)
    for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI32}) {
      const HostTensor x = sample(dtype, p, 1), y = sample(dtype, q, 2);
      check({.name = cat("matmul ", name(dtype), " ", p.size(), "-d by ", q.size(), "-d"),
             .inputs = {x, y},
             .build = [](Builder& b, const Ids& in) { return Ids{ops::matmul(b, in[0], in[1])}; },
             .expected = {matmul_reference(dtype, x, y)},
             .tolerance = dtype == DType::kF16   ? 0.02
                          : dtype == DType::kF32 ? 1e-5
                                                 : -1});
    }
  const HostTensor x = sample_in(DType::kU8, {3, 70}, 0, 255), y = sample_in(DType::kI8, {70, 4}, -128, 127);
  check({.name = "u8 by i8",
         .inputs = {x, y},
         .build = [](Builder& b, const Ids& in) { return Ids{ops::matmul(b, in[0], in[1])}; },
         .expected = {matmul_reference(DType::kI32, x, y)}});
  CHECK(failure({.name = "",
                 .inputs = {sample(DType::kF32, {2, 3}), sample(DType::kF32, {4, 5})},
                 .build = [](Builder& b, const Ids& in) { return Ids{ops::matmul(b, in[0], in[1])}; },
                 .expected = {}},
                false) == "matmul: [2, 3] and [4, 5] do not multiply: 3 and 4 differ");
}

TEST_CASE("convolutions: groups, pads, strides, dilations, one to three spatial dims") {
  const std::vector<Conv> cases = {
      {{2, 3, 7}, {4, 3, 3}, {1}, {1}, {1}, {1}, 1},
      {{1, 4, 5, 6}, {6, 4, 3, 2}, {2, 1}, {1, 2}, {1, 0}, {2, 1}, 1},
      {{2, 4, 5, 5}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4},
      {{1, 4, 4, 4}, {6, 2, 1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, 2},
      {{1, 2, 3, 4, 3}, {3, 2, 2, 2, 2}, {1, 2, 1}, {1, 1, 2}, {1, 0, 1}, {0, 1, 1}, 1},
      {{0, 3, 5, 5}, {2, 3, 3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1},
      {{1, 2, 6, 6}, {2, 2, 3, 3}, {1, 1}, {1, 1}, {-1, 0}, {0, -1}, 1},
  };
  for (const Conv& c : cases) {
    const HostTensor x = sample(DType::kF32, c.x, 1), w = sample(DType::kF32, c.w, 2);
    auto build = [c](Builder& b, const Ids& in) {
      return Ids{b.add1(OpKind::kConv, {in[0], in[1]}, attributes(c))};
    };
    check({.name = "conv",
           .inputs = {x, w},
           .build = build,
           .expected = {conv_reference(c, x, w, DType::kF32)},
           .tolerance = 1e-5});
    check({.name = "conv with a constant weight",
           .inputs = {x, w},
           .build = build,
           .expected = {conv_reference(c, x, w, DType::kF32)},
           .tolerance = 1e-5,
           .constant = {1}});
  }
  const Conv c = cases[1];
  const HostTensor x = sample_in(DType::kU8, c.x, 0, 255), w = sample_in(DType::kI8, c.w, -128, 127);
  check({.name = "integer conv",
         .inputs = {x, w},
         .build = [c](Builder& b,
                      const Ids& in) { return Ids{b.add1(OpKind::kConv, {in[0], in[1]}, attributes(c))}; },
         .expected = {conv_reference(c, x, w, DType::kI32)}});
  CHECK(failure({.name = "",
                 .inputs = {sample(DType::kF32, {1, 3, 2, 2}), sample(DType::kF32, {4, 3, 3, 3})},
                 .build =
                     [](Builder& b, const Ids& in) {
                       return Ids{b.add1(OpKind::kConv, {in[0], in[1]},
                                         attributes({{}, {}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1}))};
                     },
                 .expected = {}},
                true) == "conv: padded spatial dim 0 of size 2 is smaller than the window 3");
}

TEST_CASE("transposed convolutions") {
  struct Row {
    Conv conv;
    std::vector<int64_t> extra;
  };
  const std::vector<Row> rows = {
      {{{1, 2, 4}, {2, 3, 3}, {2}, {1}, {1}, {1}, 1}, {1}},
      {{{2, 3, 3, 4}, {3, 2, 3, 3}, {2, 3}, {1, 1}, {1, 0}, {1, 0}, 1}, {1, 0}},
      {{{1, 4, 3, 3}, {4, 2, 2, 2}, {2, 2}, {1, 2}, {0, 0}, {0, 0}, 2}, {0, 0}},
      {{{1, 2, 2, 2}, {2, 1, 1, 1}, {3, 2}, {1, 1}, {0, 0}, {0, 0}, 1}, {0, 0}},
      {{{1, 3, 2, 3, 2}, {3, 2, 3, 2, 4}, {2, 1, 2}, {1, 1, 1}, {1, 0, 1}, {1, 0, 1}, 1}, {1, 0, 0}},
      {{{2, 20, 5, 6}, {20, 18, 4, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1}, {0, 1}},
      {{{1, 4, 3}, {4, 3, 5}, {4}, {2}, {2}, {3}, 1}, {0}},
      {{{1, 4, 5}, {4, 6, 40}, {20}, {1}, {10}, {10}, 1}, {0}},
  };
  for (const Row& row : rows) {
    const HostTensor x = sample(DType::kF32, row.conv.x, 1), w = sample(DType::kF32, row.conv.w, 2);
    check({.name = "conv_transpose",
           .inputs = {x, w},
           .build =
               [row](Builder& b, const Ids& in) {
                 graph::Attributes a = attributes(row.conv);
                 a.set("output_extra", std::vector<sym::Expr>(row.extra.begin(), row.extra.end()));
                 return Ids{b.add1(OpKind::kConvTranspose, {in[0], in[1]}, a)};
               },
           .expected = {conv_transpose_reference(row.conv, row.extra, x, w)},
           .tolerance = 1e-5,
           .constant = {1}});
  }
}

// The gradient facets of all primitives but control flow, against central differences.
#include "compiler/ops/gradient.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/call.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/reduction.h"
#include "compiler/ops/composite/resize.h"
#include "compiler/ops/nodes.h"
#include "gradient_harness.h"

namespace stridec::ops::test {
namespace {

using graph::OpKind;

}  // namespace

TEST_CASE("gradients: functions of one number") {
  for (OpKind kind : {OpKind::kNeg, OpKind::kAbs, OpKind::kFloor, OpKind::kExp, OpKind::kExpm1, OpKind::kSin,
                      OpKind::kCos, OpKind::kTan, OpKind::kAtan, OpKind::kSinh, OpKind::kCosh, OpKind::kTanh,
                      OpKind::kAsinh, OpKind::kErf, OpKind::kSigmoid})
    check_gradient(std::string(graph::name(kind)), {sample_in(DType::kF64, {2, 3}, -0.9, 0.9)}, of(kind));
  for (OpKind kind : {OpKind::kSqrt, OpKind::kRsqrt, OpKind::kRcp, OpKind::kLog, OpKind::kLog1p})
    check_gradient(std::string(graph::name(kind)), {sample_in(DType::kF64, {5}, 0.5, 3)}, of(kind));
  for (OpKind kind : {OpKind::kAsin, OpKind::kAcos, OpKind::kAtanh})
    check_gradient(std::string(graph::name(kind)), {sample_in(DType::kF64, {5}, -0.7, 0.7)}, of(kind));
  check_gradient("acosh", {sample_in(DType::kF64, {}, 1.5, 3)}, of(OpKind::kAcosh));
}

TEST_CASE("gradients: functions of two numbers, broadcast") {
  for (OpKind kind : {OpKind::kAdd, OpKind::kSub, OpKind::kMul, OpKind::kDiv, OpKind::kMod, OpKind::kRem,
                      OpKind::kAtan2, OpKind::kMin, OpKind::kMax}) {
    check_gradient(std::string(graph::name(kind)),
                   {numbers({2, 3}), sample_in(DType::kF64, {2, 3}, 1.1, 2.3)}, of(kind),
                   {.symbolic = false});
    check_gradient(cat(graph::name(kind), " broadcast"),
                   {numbers({2, 1, 3}), sample_in(DType::kF64, {4, 1}, 1.1, 2.3)}, of(kind),
                   {.fixed = {0, 1}});
  }
  check_gradient("pow", {sample_in(DType::kF64, {3, 2}, 0.5, 2), numbers({2}, 2)}, of(OpKind::kPow),
                 {.fixed = {0, 1}});
  check_gradient("fma", {numbers({3, 1}), numbers({3, 4}, 2), numbers({4}, 3)}, of(OpKind::kFma),
                 {.fixed = {0, 1, 2}});
  check_gradient("select", {sample(DType::kBool, {3, 1}), numbers({3, 4}), numbers({4}, 2)},
                 of(OpKind::kSelect), {.fixed = {0, 1, 2}});
  check_gradient("cast", {numbers({4})}, [](Builder& b, const std::vector<ValueId>& in) {
    return ops::cast(b, ops::mul(b, in[0], in[0]), DType::kF64);
  });
}

TEST_CASE("gradients: reductions and scans") {
  const Dims dims{0, 2};
  for (OpKind kind : {OpKind::kReduceSum, OpKind::kReduceProd, OpKind::kReduceMax, OpKind::kReduceMin})
    check_gradient(std::string(graph::name(kind)), {numbers({2, 3, 2})}, of(kind, {{"dims", dims}}));
  HostTensor with_zero = numbers({2, 3});
  loop::set_number(with_zero, 1, 0);
  check_gradient("product with a zero", {with_zero}, of(OpKind::kReduceProd, {{"dims", Dims{1}}}));
  HostTensor with_zeros = numbers({3, 4}, 2);
  for (int64_t i : {1, 5, 7}) loop::set_number(with_zeros, i, 0);
  for (int64_t reverse : {0, 1})
    for (int64_t exclusive : {0, 1})
      for (OpKind kind : {OpKind::kCumSum, OpKind::kCumProd})
        check_gradient(cat(graph::name(kind), reverse, exclusive), {with_zeros},
                       of(kind, {{"dim", int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}}));
  for (int64_t reverse : {0, 1})
    check_gradient("linear_scan", {numbers({3, 4}), numbers({3, 4}, 2)},
                   of(OpKind::kLinearScan, {{"dim", int64_t{1}}, {"reverse", reverse}}), {.symbolic = false});
  check_gradient("cumprod of nothing", {numbers({2, 0})}, of(OpKind::kCumProd, {{"dim", int64_t{1}}}));
}

TEST_CASE("gradients: ties are PyTorch's") {
  const HostTensor x = tensor(DType::kF64, {4}, {-1, 0, 2, 3}), y = tensor(DType::kF64, {4}, {0, 0, 2, 1});
  const auto at = [](std::vector<double> values) {
    return tensor(DType::kF64, {static_cast<int64_t>(values.size())}, values);
  };
  check_gradient_is("max", {x, y}, of(OpKind::kMax), {at({0, .5, .5, 1}), at({1, .5, .5, 0})}, false);
  check_gradient_is("min", {x, y}, of(OpKind::kMin), {at({1, .5, .5, 0}), at({0, .5, .5, 1})}, false);
  const auto of_term = [](const std::function<Term(Term)>& f) {
    return [f](Builder& b, const std::vector<ValueId>& in) { return f(Term(b, in[0])).id(); };
  };
  check_gradient_is("relu", {x}, of_term([](Term t) { return relu(t); }), {at({0, 0, 1, 1})});
  check_gradient_is("clip", {at({-1, 0, 1, 2})},
                    of_term([](Term t) { return clip(t, number_like(t, 0), number_like(t, 2)); }),
                    {at({0, 0, 1, 0})});
  check_gradient_is("hard_swish", {at({-3, 0, 3})}, of_term([](Term t) { return hard_swish(t); }),
                    {at({0, .5, 1})});
  check_gradient_is("hard_sigmoid", {at({-3, 0, 3})},
                    of_term([](Term t) { return hard_sigmoid(t, 0.25, 0.75); }), {at({0, .25, 0})});
  check_gradient_is("softplus", {at({0})}, of_term([](Term t) { return softplus(t); }), {at({.5})});
  check_gradient_is("abs", {at({0})}, of(OpKind::kAbs), {at({0})});
  check_gradient_is("reduce_max", {at({1, 3, 3})}, of(OpKind::kReduceMax, {{"dims", Dims{0}}}),
                    {at({0, .5, .5})});
  check_gradient_is("scatter max", {at({1, 3}), places({3}, {1, 1, 0}), at({3, 3, 0})},
                    of(OpKind::kScatterElements, {{"dim", int64_t{0}}, {"reduction", std::string("max")}}),
                    {at({1, 1.0 / 3}), at({1.0 / 3, 1.0 / 3, 0})}, false);
}

TEST_CASE("gradients: what embeddings say of rows") {
  const HostTensor table = numbers({3, 2}), index = places({4}, {2, 1, 2, 2});
  const auto rows = [&](std::vector<double> of) {
    std::vector<double> values;
    for (double v : of) values.insert(values.end(), 2, v);
    return tensor(DType::kF64, {3, 2}, values);
  };
  const auto gathered = [](graph::Attributes more) {
    more.set("dim", int64_t{0});
    return of(OpKind::kGather, more);
  };
  check_gradient_is("plain", {table, index}, gathered({}), {rows({0, 1, 3})}, false);
  check_gradient_is("padding", {table, index}, gathered({{"no_gradient_at", int64_t{2}}}), {rows({0, 1, 0})},
                    false);
  check_gradient_is("shared", {table, index}, gathered({{"shared_gradient", int64_t{1}}}), {rows({0, 1, 1})},
                    false);
  const HostTensor wide = numbers({2, 3}), grid = tensor(DType::kI64, {2, 2}, {2, 1, 2, 2});
  check_gradient_is("along another dim", {wide, grid},
                    of(OpKind::kGather, {{"dim", int64_t{1}}, {"no_gradient_at", int64_t{1}}}),
                    {tensor(DType::kF64, {2, 3}, {0, 0, 3, 0, 0, 3})}, false);
}

TEST_CASE("gradients: views") {
  check_gradient("permute, reshape", {numbers({2, 3, 4})}, [](Builder& b, const std::vector<ValueId>& in) {
    const Term x(b, in[0]);
    const Term y = permute(x, {2, 0, 1});
    return reshape(y, {count(y.shape())}).id();
  });
  check_gradient(
      "expand", {numbers({3, 1})},
      [](Builder& b, const std::vector<ValueId>& in) { return expand(Term(b, in[0]), {2, 3, 4}).id(); },
      {.fixed = {0}});
  for (int64_t step : {1, 2, 3, -1, -2})
    check_gradient(cat("slice by ", step), {numbers({3, 7})},
                   [&](Builder& b, const std::vector<ValueId>& in) {
                     return ops::slice_clamped(b, in[0], 1, step > 0 ? 1 : 5, step > 0 ? 7 : 0, step);
                   });
  check_gradient("empty slice", {numbers({3})}, [](Builder& b, const std::vector<ValueId>& in) {
    return ops::slice_clamped(b, in[0], 0, 3, 3, 2);
  });
  for (int64_t step : {1, 3, -2})
    check_gradient(cat("slice by a step of the run, ", step), {numbers({3, 7}), places({1}, {double(step)})},
                   [&](Builder& b, const std::vector<ValueId>& in) {
                     const sym::Expr by = b.elements_of(in[1], "step", -4, 4).at(0);
                     return slice_dims(Term(b, in[0]), {0, step > 0 ? 1 : 6}, {3, 2}, {1, by}).id();
                   },
                   {.fixed = {0, 1}, .symbolic = false, .strided = false});
  for (const char* mode : {"edge", "reflect", "wrap"})
    for (const auto& [before, after] : std::vector<std::pair<int64_t, int64_t>>{
             {2, 1}, {0, 3}, {5, 9}, {-1, 2}, {3, -2}, {-2, -1}, {2, -2}})
      check_gradient(cat(mode, " ", before, " ", after), {numbers({2, 4})},
                     [&](Builder& b, const std::vector<ValueId>& in) {
                       return ops::pad(b, in[0], {1, before}, {0, after}, std::nullopt, mode);
                     },
                     {.symbolic = before >= 0 && after >= 0});
  for (const char* mode : {"edge", "reflect", "wrap"})
    check_gradient(cat(mode, " of one element"), {numbers({1, 2})},
                   [&](Builder& b, const std::vector<ValueId>& in) {
                     return ops::pad(b, in[0], {2, 0}, {1, 0}, std::nullopt, mode);
                   });
  check_gradient(
      "pad and cut", {numbers({3, 4}), numbers({})},
      [](Builder& b, const std::vector<ValueId>& in) { return ops::pad(b, in[0], {1, -1}, {0, 2}, in[1]); });
  check_gradient("pieces in another order", {numbers({5, 3})},
                 [](Builder& b, const std::vector<ValueId>& in) {
                   return ops::concat(b, {ops::slice(b, in[0], 0, 2, 3), ops::slice(b, in[0], 0, 0, 2)}, 0);
                 });
  check_gradient(
      "concat", {numbers({2, 3}), numbers({2, 1}, 2)},
      [](Builder& b, const std::vector<ValueId>& in) { return ops::concat(b, {in[0], in[1], in[0]}, 1); });
}

TEST_CASE("gradients: indices") {
  check_gradient("gather", {numbers({3, 4, 2}), places({2, 3}, {0, 3, 1, 1, -1, 0})},
                 of(OpKind::kGather, {{"dim", int64_t{1}}}));
  check_gradient("gather with batch dims", {numbers({2, 3, 4, 2}), places({2, 2}, {0, 3, 1, 1})},
                 of(OpKind::kGather, {{"dim", int64_t{2}}, {"batch_dims", int64_t{1}}}));
  check_gradient("gather_elements", {numbers({3, 4}), places({2, 3}, {0, 3, 1, 1, -1, 0})},
                 of(OpKind::kGatherElements, {{"dim", int64_t{1}}}));
  check_gradient("gather_nd", {numbers({2, 3, 4}), places({2, 2, 1}, {0, 2, 1, 1})},
                 of(OpKind::kGatherNd, {{"batch_dims", int64_t{1}}}), {.fixed = {1}});
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    check_gradient(
        cat("scatter_elements ", reduction),
        {numbers({3, 4}), places({2, 2}, {0, 3, 1, 2}), numbers({2, 2}, 2)},
        of(OpKind::kScatterElements, {{"dim", int64_t{1}}, {"reduction", std::string(reduction)}}));
    check_gradient(cat("scatter_nd ", reduction),
                   {numbers({3, 4}), places({2, 1}, {2, 0}), numbers({2, 4}, 2)},
                   of(OpKind::kScatterNd, {{"reduction", std::string(reduction)}}), {.fixed = {1}});
  }
  HostTensor zeros = numbers({3, 4}), updates = numbers({2, 3}, 2);
  for (int64_t i : {1, 4}) loop::set_number(zeros, i, 0);
  for (int64_t i : {0, 4}) loop::set_number(updates, i, 0);
  check_gradient("scatter mul with zeros", {zeros, places({2, 3}, {0, 0, 3, 1, 0, 2}), updates},
                 of(OpKind::kScatterElements, {{"dim", int64_t{1}}, {"reduction", std::string("mul")}}),
                 {.second = false});
  for (const char* reduction : {"add", "mul", "max", "min"})
    check_gradient(
        cat("scatter several ", reduction),
        {numbers({3, 4}), places({2, 3}, {0, 0, 3, 1, 2, 2}), numbers({2, 3}, 2)},
        of(OpKind::kScatterElements, {{"dim", int64_t{1}}, {"reduction", std::string(reduction)}}));
  check_gradient("topk", {numbers({2, 5})}, of(OpKind::kTopK, {{"dim", int64_t{1}}, {"k", sym::Expr(3)}}));
  check_gradient("sort", {numbers({4, 2})}, of(OpKind::kSort, {{"dim", int64_t{0}}}));
}

TEST_CASE("gradients: products") {
  check_gradient("matmul", {numbers({2, 3}), numbers({3, 4}, 2)},
                 [](Builder& b, const std::vector<ValueId>& in) { return ops::matmul(b, in[0], in[1]); });
  // Batch, free and contracted dims in arbitrary order.
  check_gradient("dot_general", {numbers({3, 2, 4, 5}), numbers({5, 6, 3, 2}, 2)},
                 [](Builder& b, const std::vector<ValueId>& in) {
                   return ops::dot_general(b, in[0], in[1], {{1}, {3}, {3, 0}, {0, 2}});
                 });
  for (int64_t stride : {1, 2})
    for (int64_t dilation : {1, 2})
      for (int64_t groups : {1, 2}) {
        const graph::Attributes attributes{{"strides", Dims{stride, 1}},
                                           {"dilations", Dims{1, dilation}},
                                           {"before", std::vector<sym::Expr>{1, 0}},
                                           {"after", std::vector<sym::Expr>{0, 2}},
                                           {"groups", groups}};
        const GradientCheck options{.fixed = {1},
                                    .second = groups != stride,
                                    .strided = groups == stride};  // both forms, in less time
        check_gradient(cat("conv ", stride, dilation, groups),
                       {numbers({2, 2 * groups, 4, 3}), numbers({groups, 2, 2, 2}, 2)},
                       of(OpKind::kConv, attributes), options);
        graph::Attributes transposed = attributes;
        transposed.set("output_extra", std::vector<sym::Expr>{0, 1});
        check_gradient(cat("conv_transpose ", stride, dilation, groups),
                       {numbers({2, 2 * groups, 2, 3}), numbers({2 * groups, 1, 2, 2}, 2)},
                       of(OpKind::kConvTranspose, transposed), options);
      }
}

TEST_CASE("gradients: a convolution's weight gradient computes the window's positions alone") {
  for (const OpKind kind : {OpKind::kConv, OpKind::kConvTranspose}) {
    graph::Graph g;
    Builder b(g, shape_table());
    const ValueId x = b.input("x", {DType::kF32, {2, 3, 6, 6}}),
                  w = b.input("w", {DType::kF32, {3, 3, 1, 2}});
    graph::Attributes attributes{{"strides", Dims{2, 3}},
                                 {"dilations", Dims{1, 1}},
                                 {"before", std::vector<sym::Expr>{0, 0}},
                                 {"after", std::vector<sym::Expr>{0, 0}},
                                 {"groups", int64_t{1}}};
    if (kind == OpKind::kConvTranspose) attributes.set("output_extra", std::vector<sym::Expr>{1, 2});
    gradients(b, b.add1(kind, {x, w}, attributes), {x, w});
    CHECK(std::none_of(g.nodes.begin(), g.nodes.end(),
                       [](const graph::Node& node) { return node.kind == OpKind::kSlice; }));
  }
}

TEST_CASE("gradients: the Fourier transform") {
  for (const bool backward : {false, true})
    check_gradient("fourier", {numbers({2, 6, 2})}, [&](Builder& b, const std::vector<ValueId>& in) {
      return fourier(Term(b, in[0]), backward);
    });
}

TEST_CASE("gradients: pooling") {
  const graph::Attributes window{{"window", std::vector<sym::Expr>{2, 3}},
                                 {"strides", Dims{2, 1}},
                                 {"dilations", Dims{1, 1}},
                                 {"before", std::vector<sym::Expr>{1, 0}},
                                 {"after", std::vector<sym::Expr>{0, 1}}};
  const graph::Attributes apart{{"window", std::vector<sym::Expr>{2, 2}},
                                {"strides", Dims{3, 2}},
                                {"dilations", Dims{2, 3}},
                                {"before", std::vector<sym::Expr>{0, 1}},
                                {"after", std::vector<sym::Expr>{1, 1}},
                                {"extra", std::vector<sym::Expr>{1, 0}}};
  for (const graph::Attributes& form : {window, apart})
    for (const char* kind : {"sum", "max", "min", "prod"}) {
      graph::Attributes attributes = form;
      attributes.set("kind", std::string(kind));
      check_gradient(cat(kind, " of windows"), {numbers({2, 2, 5, 4})},
                     of(OpKind::kReduceWindow, attributes));
    }
  for (const graph::Attributes& form : {window, apart})
    for (int64_t pads : {0, 1}) {
      graph::Attributes attributes = form;
      attributes.set("count_include_pad", pads);
      check_gradient(cat("average pool ", pads), {numbers({2, 1, 5, 4})},
                     of(OpKind::kAveragePool, attributes));
    }
  // Gathered, not scattered: the same sums in the same order on any number of threads.
  graph::Graph g;
  Builder b(g, shape_table());
  graph::Attributes attributes = window;
  attributes.set("kind", std::string("max"));
  const ValueId x = b.input("x", {DType::kF32, {2, 3, 8, 8}});
  gradients(b, b.add1(OpKind::kReduceWindow, {x}, attributes), {x});
  CHECK(std::none_of(g.nodes.begin(), g.nodes.end(), [](const graph::Node& node) {
    return node.kind == OpKind::kScatterElements || node.kind == OpKind::kScatterNd;
  }));
}

TEST_CASE("gradients: resize") {
  struct Form {
    const char *mode, *coordinate;
    int64_t in, out;
    double scale = 0;
  };
  std::vector<Form> forms;
  int compiled = 0;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* coordinate :
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"})
      for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{3, 7}, {7, 3}, {5, 1}, {1, 4}})
        forms.push_back({mode, coordinate, in, out});
    forms.push_back({mode, "half_pixel", 4, 9, 2.3});
    forms.push_back({mode, "asymmetric", 8, 4, 0.6});
  }
  for (const Form& form : forms)
    for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
      for (int variant : {0, 1, 2, 3}) {
        const bool is_nearest = std::string(form.mode) == "nearest";
        if (is_nearest ? variant != 0 : std::string(nearest) != "floor") continue;
        if (!thorough() && ++compiled % 8 != 0) continue;
        graph::Attributes a{{"dims", Dims{1}},
                            {"sizes", std::vector<sym::Expr>{form.out}},
                            {"mode", std::string(form.mode)},
                            {"coordinate", std::string(form.coordinate)},
                            {"nearest", std::string(nearest)},
                            {"exclude_outside", int64_t{variant == 1}},
                            {"antialias", int64_t{variant >= 2}},
                            {"sparse", int64_t{variant == 3}}};
        if (form.scale > 0) {
          const Rational scale = nearest_rational(form.scale);
          a.set("scale_p", std::vector<sym::Expr>{scale.p});
          a.set("scale_q", std::vector<sym::Expr>{scale.q});
        }
        check_gradient(cat(form.mode, " ", form.coordinate, " ", nearest, " ", form.in, " to ", form.out,
                           " variant ", variant),
                       {numbers({2, form.in})}, of(OpKind::kResize, a),
                       {.second = form.in == 3 || form.scale > 0, .strided = false});
      }
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (int64_t antialias : {0, 1}) {
      const graph::Attributes a{{"dims", Dims{2, 1}},
                                {"sizes", std::vector<sym::Expr>{2, 5}},
                                {"mode", std::string(mode)},
                                {"coordinate", std::string("half_pixel")},
                                {"antialias", antialias}};
      check_gradient(cat(mode, " of two dims"), {numbers({2, 3, 4})}, of(OpKind::kResize, a));
    }
  for (const auto& [start, end] : std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {3, 1}, {-1, 5}})
    for (const char* mode : {"nearest", "linear", "cubic"})
      check_gradient(cat("crop ", mode), {numbers({2, 5})},
                     of(OpKind::kResize, {{"dims", Dims{1}},
                                          {"sizes", std::vector<sym::Expr>{4}},
                                          {"mode", std::string(mode)},
                                          {"coordinate", std::string("tf_crop_and_resize")},
                                          {"roi_p", std::vector<sym::Expr>{start, end}},
                                          {"roi_q", std::vector<sym::Expr>{4, 4}},
                                          {"extrapolation", 7.0}}),
                     {.strided = false});
}

TEST_CASE("gradients: what is used twice, what is not, what cannot be") {
  check_gradient("shared", {numbers({3}), numbers({3}, 2)}, [](Builder& b, const std::vector<ValueId>& in) {
    const Term x(b, in[0]);
    return (exp(x) * x + x).id();
  });
  graph::Graph g;
  Builder b(g, shape_table());
  const ValueId x = b.input("x", {DType::kF32, {2, 3}}), window = b.input("k", {DType::kI64, {}});
  const ValueId free = b.input("free", {DType::kF32, {2, 3}}),
                other = b.input("other", {DType::kF32, {2, 3}});
  const auto product = [&](ValueId of, const char* origin) {
    b.set_origin(origin);
    const sym::Expr size = b.elements_of(window, "window", 1, 3).at(0);
    return b.add1(OpKind::kReduceWindow, {of},
                  {{"kind", std::string("prod")},
                   {"window", std::vector<sym::Expr>{size}},
                   {"strides", Dims{1}},
                   {"dilations", Dims{1}},
                   {"before", std::vector<sym::Expr>{0}},
                   {"after", std::vector<sym::Expr>{0}}});
  };
  const ValueId first = product(x, "node 1"), y = product(ops::exp(b, first), "node 2");
  b.set_origin("");
  const Term loss = Term(b, y) + stop_gradient(reduce_sum(Term(b, other), {0, 1}));
  // All obstacles at once.
  const size_t nodes = g.nodes.size();
  const MissingGradients missing = missing_gradients(g, loss, {x, free, other});
  CHECK(g.nodes.size() == nodes);
  REQUIRE(missing.operators.size() == 2);
  CHECK(missing.operators[0].where.node == "node 2");
  CHECK(missing.operators[1].where.node == "node 1");
  CHECK(missing.operators[1].where.op == "reduce_window");
  REQUIRE(missing.unreached.size() == 2);
  CHECK(missing.unreached[0].x == free);
  CHECK(missing.unreached[0].why == "the loss does not depend on it");
  CHECK(missing.unreached[1].x == other);
  CHECK(missing.unreached[1].why == "every way to the loss passes an operator whose gradient is zero");
  try {
    gradients(b, loss, {x});
    FAIL_CHECK("a gradient of a product of windows");
  } catch (const Error& e) {
    CHECK(e.diagnostic.message == "2 operators have no gradient");
    REQUIRE(e.diagnostic.notes.size() == 2);
    CHECK(e.diagnostic.notes[0] ==
          "node 2: the gradient of reduce_window is not supported: its kind is prod, and its windows are "
          "large or known to the run alone");
  }
  // A gradient may end at such a node.
  CHECK(gradients(b, ops::mul(b, first, first), {first}).size() == 1);
  CHECK(missing_gradients(g, ops::mul(b, first, first), {first}).operators.empty());
}

TEST_CASE("gradients: every row states its own") {
  const auto states = [](std::string_view name, const Gradient& gradient) {
    INFO(name);
    CHECK(std::string(gradient.formula()) != "");
    CHECK((gradient.is_zero() || gradient.rule() || gradient.region_rule()));
    if (gradient.is_zero()) CHECK(std::string(gradient.note()) != "");
  };
  for (int kind = 0; kind < graph::kOpCount; ++kind)
    states(graph::name(static_cast<OpKind>(kind)), op_def(static_cast<OpKind>(kind)).gradient);
  for (const CallDef& call : call_defs()) states(call.routine, call.gradient);
}

TEST_CASE("gradients: a routine without one stops them, as an operation does") {
  graph::Graph g;
  Builder b(g, shape_table());
  const Term corners(b, b.input("corners", {DType::kF32, {1, 4, 3}}));
  const Term eligible = equal(slice(corners, 1, 0, 1), slice(corners, 1, 1, 1));
  const Term kept = suppress(corners, reshape(eligible, {1, 3}), filled(b, {}, DType::kI64, 2),
                             filled(b, {}, DType::kF32, 0.5));
  const MissingGradients missing =
      missing_gradients(g, reduce_sum(cast(kept, DType::kF32), {0, 1}).id(), {corners.id()});
  CHECK(missing.operators.empty());
  CHECK(missing.unreached.size() == 1);
}

TEST_CASE("gradients: a stopped maximum leaves no trace") {
  const auto through = [](const std::function<Term(Term)>& f) {
    return [f](Builder& b, const std::vector<ValueId>& in) { return f(Term(b, in[0])).id(); };
  };
  const std::vector<std::function<Term(Term)>> all = {[](Term x) { return softmax(x, {1}); },
                                                      [](Term x) { return log_softmax(x, {1}); },
                                                      [](Term x) { return log_sum_exp(x, {1}, false); }};
  for (const auto& f : all) {
    check_gradient("softmax", {numbers({3, 4})}, through(f));
    graph::Graph g;
    Builder b(g, shape_table());
    const Term x(b, b.input("x", {DType::kF32, {3, 4}}));
    gradients(b, f(x), {x});
    CHECK(std::none_of(g.nodes.begin(), g.nodes.end(),
                       [](const graph::Node& node) { return node.kind == OpKind::kEq; }));
  }
}

TEST_CASE("gradients: a one-hot row's sum is the number that it holds") {
  // As of a cross entropy: the logarithm of a softmax at one index of each row.
  const auto loss = [](Builder& b, const std::vector<ValueId>& in) {
    return gather_elements(log_softmax({b, in[0]}, {1}), Term(b, in[1]), 1).id();
  };
  const auto labels = [](const std::vector<double>& at) { return places({3, 1, 2}, at); };
  check_gradient("labels", {numbers({3, 4, 2}), labels({0, 3, 1, 2, 3, 3})}, loss, {.fixed = {1}});
  check_gradient("labels from the end", {numbers({3, 4, 2}), labels({-4, -1, 1, -2, 3, 0})}, loss,
                 {.fixed = {1}});

  // 256 classes do not fit into the type of their indices.
  const auto of_bytes = [&](Builder& b, const std::vector<ValueId>& in) {
    return gather_elements(log_softmax({b, in[0]}, {1}), cast(Term(b, in[1]), DType::kU8), 1).id();
  };
  check_gradient("bytes", {numbers({1, 256, 1}), places({1, 1, 1}, {255})}, of_bytes,
                 {.fixed = {0, 1}, .symbolic = false, .second = false, .strided = false});

  for (const int64_t classes : {4, 5000}) {  // 0, 1, ... as a constant, and as an iota
    graph::Graph g;
    Builder b(g, shape_table());
    const ValueId x = b.input("x", {DType::kF32, {3, classes, 2}}),
                  at = b.input("at", {DType::kI64, {3, 1, 2}});
    const Term y(b, loss(b, {x, at}));
    const size_t before = g.nodes.size();
    gradients(b, y, {x});
    CHECK(std::none_of(
        g.nodes.begin() + static_cast<ptrdiff_t>(before), g.nodes.end(), [&](const graph::Node& node) {
          return node.kind == OpKind::kReduceSum && g[g[node.inputs[0]].producer].kind == OpKind::kSelect;
        }));
  }
}

TEST_CASE("gradients: sums of deviations from their mean are left out") {
  const auto batch = [](Builder& b, const std::vector<ValueId>& in) {
    return batch_norm_training({b, in[0]}, Term(b, in[1]), Term(b, in[2]), 1e-3).value.id();
  };
  const auto layer = [](Builder& b, const std::vector<ValueId>& in) {
    return layer_norm({b, in[0]}, {2, 3}, Term(b, in[1]), Term(b, in[2]), 1e-3).value.id();
  };
  // Close to a mean, but none: of another tensor, over other dims, of twice the size.
  const auto almost = [](Builder& b, const std::vector<ValueId>& in) {
    const Term x(b, in[0]), y(b, in[1]);
    const Term apart = x - reduce_mean(y, {0}, kKeep), across = x - reduce_mean(x, {1}, kKeep),
               twice = x - reduce_mean(x, {0}, kKeep) * 2.0;
    return (square(apart) + square(across) * square(twice)).id();
  };
  check_gradient("batch norm", {numbers({3, 2, 2, 2}), numbers({2}, 2), numbers({2}, 3)}, batch,
                 {.fixed = {1, 2}});
  check_gradient("layer norm", {numbers({3, 2, 2, 2}), numbers({2, 2}, 2), numbers({2, 2}, 3)}, layer);
  check_gradient("almost a mean", {numbers({3, 3}), numbers({3, 3}, 2)}, almost);

  for (const bool symbolic : {false, true}) {
    graph::Graph g;
    Builder b(g, shape_table());
    const sym::Expr images = symbolic ? sym::var("n") : sym::Expr(3);
    if (symbolic) g.facts.set_range(sym::var("n"), 1, 64);
    const ValueId x = b.input("x", {DType::kF32, {images, 2, 5, 5}}),
                  scale = b.input("s", {DType::kF32, {2}}), bias = b.input("b", {DType::kF32, {2}});
    const Term y(b, batch(b, {x, scale, bias}));
    const size_t before = g.nodes.size();
    gradients(b, y * Term(b, b.input("c", {DType::kF32, {images, 2, 5, 5}})), {x, scale, bias});
    // Over all of x: the cotangent's sum, and that of its product with the deviations, as in PyTorch's
    // formula.
    const auto sums = std::count_if(
        g.nodes.begin() + static_cast<ptrdiff_t>(before), g.nodes.end(), [&](const graph::Node& node) {
          return node.kind == OpKind::kReduceSum && g[node.inputs[0]].type.shape == g[x].type.shape;
        });
    CHECK(sums == 2);
  }
}

}  // namespace stridec::ops::test

// Compares the gradient facets with central differences, with constant and symbolic sizes.
#include "compiler/ops/gradient.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/nodes.h"
#include "harness.h"

namespace stridec::ops::test {
namespace {

using graph::OpKind;
using Function = std::function<ValueId(Builder&, const std::vector<ValueId>&)>;

// Weights every element of the result differently.
Term weighted_sum(Builder& b, ValueId value) {
  const Term y(b, value);
  Dims all;
  Term weight = number_like(y, 0.5);
  for (int64_t d = 0; d < y.rank(); ++d) {
    all.push_back(d);
    const Term at = index_along(b, y.shape(), d, y.dtype());
    weight = weight * 0.7 + apply(OpKind::kSin, at * 1.3 + static_cast<double>(d));
  }
  const Term product = y * weight;
  return all.empty() ? product : reduce_sum(product, all);
}

double value_at(const Function& f, const std::vector<HostTensor>& inputs) {
  graph::Graph g;
  Builder b(g, shape_table());
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    graph::Type type{inputs[i].dtype, {}};
    for (int64_t size : inputs[i].shape) type.shape.emplace_back(size);
    ids.push_back(b.input(cat("x", i), type));
  }
  b.output("y", weighted_sum(b, f(b, ids)));
  graph::eliminate_dead_code(g);
  return loop::get_number(runner()(lower(g), inputs)[0], 0);
}

// Inputs that are not floats have no gradient.
void check_gradient(const std::string& name, std::vector<HostTensor> inputs, const Function& f,
                    std::vector<size_t> fixed = {}, bool symbolic = true) {
  INFO(name);
  Case c{.name = name, .inputs = inputs, .tolerance = 2e-6, .fixed = std::move(fixed), .symbolic = symbolic};
  for (HostTensor& x : inputs) {
    if (!is_float(x.dtype)) continue;
    HostTensor slopes = loop::make_tensor(x.dtype, x.shape);
    for (int64_t i = 0; i < loop::element_count(x); ++i) {
      const double at = loop::get_number(x, i), step = 1e-5;
      double sides[2];
      for (int side : {0, 1}) {
        loop::set_number(x, i, side ? at + step : at - step);
        sides[side] = value_at(f, inputs);
      }
      loop::set_number(x, i, at);
      loop::set_number(slopes, i, (sides[1] - sides[0]) / (2 * step));
    }
    c.expected.push_back(std::move(slopes));
  }
  c.build = [&](Builder& b, const std::vector<ValueId>& in) {
    std::vector<ValueId> xs;
    for (ValueId v : in)
      if (is_float(b.dtype(v))) xs.push_back(v);
    return gradients(b, weighted_sum(b, f(b, in)), xs);
  };
  check(c);
}

HostTensor numbers(std::vector<int64_t> shape, int seed = 1) { return sample(DType::kF64, shape, seed); }
HostTensor places(std::vector<int64_t> shape, const std::vector<double>& values) {
  return tensor(DType::kI64, std::move(shape), values);
}

Function of(OpKind kind, graph::Attributes attributes = {}) {
  return [kind, attributes](Builder& b, const std::vector<ValueId>& in) {
    return b.add(kind, in, attributes)[0];
  };
}

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
                   {numbers({2, 3}), sample_in(DType::kF64, {2, 3}, 1.1, 2.3)}, of(kind), {},
                   /*symbolic=*/false);
    check_gradient(cat(graph::name(kind), " broadcast"),
                   {numbers({2, 1, 3}), sample_in(DType::kF64, {4, 1}, 1.1, 2.3)}, of(kind), {0, 1});
  }
  check_gradient("pow", {sample_in(DType::kF64, {3, 2}, 0.5, 2), numbers({2}, 2)}, of(OpKind::kPow), {0, 1});
  check_gradient("fma", {numbers({3, 1}), numbers({3, 4}, 2), numbers({4}, 3)}, of(OpKind::kFma), {0, 1, 2});
  check_gradient("select", {sample(DType::kBool, {3, 1}), numbers({3, 4}), numbers({4}, 2)},
                 of(OpKind::kSelect), {0, 1, 2});
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
  for (int64_t reverse : {0, 1})
    for (int64_t exclusive : {0, 1})
      check_gradient(
          "cumsum", {numbers({3, 4})},
          of(OpKind::kCumSum, {{"dim", int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}}));
}

TEST_CASE("gradients: views") {
  check_gradient("permute, reshape", {numbers({2, 3, 4})}, [](Builder& b, const std::vector<ValueId>& in) {
    const Term x(b, in[0]);
    const Term y = permute(x, {2, 0, 1});
    return reshape(y, {count(y.shape())}).id();
  });
  check_gradient(
      "expand", {numbers({3, 1})},
      [](Builder& b, const std::vector<ValueId>& in) { return expand(Term(b, in[0]), {2, 3, 4}).id(); }, {0});
  for (int64_t step : {1, 2, 3, -1, -2})
    check_gradient(cat("slice by ", step), {numbers({3, 7})},
                   [&](Builder& b, const std::vector<ValueId>& in) {
                     return ops::slice_clamped(b, in[0], 1, step > 0 ? 1 : 5, step > 0 ? 7 : 0, step);
                   });
  check_gradient("empty slice", {numbers({3})}, [](Builder& b, const std::vector<ValueId>& in) {
    return ops::slice_clamped(b, in[0], 0, 3, 3, 2);
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
                 of(OpKind::kGatherNd, {{"batch_dims", int64_t{1}}}), {1});
  for (const char* reduction : {"none", "add"}) {
    check_gradient(
        cat("scatter_elements ", reduction),
        {numbers({3, 4}), places({2, 2}, {0, 3, 1, 2}), numbers({2, 2}, 2)},
        of(OpKind::kScatterElements, {{"dim", int64_t{1}}, {"reduction", std::string(reduction)}}));
    check_gradient(cat("scatter_nd ", reduction),
                   {numbers({3, 4}), places({2, 1}, {2, 0}), numbers({2, 4}, 2)},
                   of(OpKind::kScatterNd, {{"reduction", std::string(reduction)}}), {1});
  }
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
        check_gradient(cat("conv ", stride, dilation, groups),
                       {numbers({2, 2 * groups, 5, 4}), numbers({3 * groups, 2, 2, 2}, 2)},
                       of(OpKind::kConv, attributes), {1});
        graph::Attributes transposed = attributes;
        transposed.set("output_extra", std::vector<sym::Expr>{0, 1});
        check_gradient(cat("conv_transpose ", stride, dilation, groups),
                       {numbers({2, 2 * groups, 3, 4}), numbers({2 * groups, 3, 2, 2}, 2)},
                       of(OpKind::kConvTranspose, transposed), {1});
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
  for (const char* kind : {"sum", "max"}) {
    graph::Attributes attributes = window;
    attributes.set("kind", std::string(kind));
    check_gradient(cat(kind, " of windows"), {numbers({2, 2, 5, 4})}, of(OpKind::kReduceWindow, attributes));
  }
  for (int64_t pads : {0, 1}) {
    graph::Attributes attributes = window;
    attributes.set("count_include_pad", pads);
    check_gradient(cat("average pool ", pads), {numbers({2, 1, 5, 4})}, of(OpKind::kAveragePool, attributes));
  }
}

TEST_CASE("gradients: what is used twice, what is not, what cannot be") {
  check_gradient("shared", {numbers({3}), numbers({3}, 2)}, [](Builder& b, const std::vector<ValueId>& in) {
    const Term x(b, in[0]);
    return (exp(x) * x + x).id();
  });
  graph::Graph g;
  Builder b(g, shape_table());
  const ValueId x = b.input("x", {DType::kF32, {2, 3}});
  const ValueId y = b.add1(OpKind::kCumProd, {x}, {{"dim", int64_t{0}}});
  try {
    gradients(b, y, {x});
    FAIL_CHECK("a gradient of cumprod");
  } catch (const Error& e) {
    CHECK(e.diagnostic.message == "the gradient of cumprod is not supported");
  }
  // A gradient may end at such a node.
  CHECK(gradients(b, ops::mul(b, y, x), {y}).size() == 1);
  // Nodes that depend on x are rebuilt with its substitute.
  const ValueId other = b.input("other", {DType::kF32, {2, 3}});
  const ValueId again = replay(b, ops::exp(b, ops::neg(b, x)), {x}, {other});
  CHECK(again == ops::exp(b, ops::neg(b, other)));
}

}  // namespace stridec::ops::test

#include "compiler/schedule/algebra/winograd.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

struct Conv {
  int64_t groups = 1, in = 3, out = 4, taps = 3, stride = 1, dilation = 1, pad = 1;
  bool weights = true;  // false: w is an input
};

// Convolves x [1, groups*in, n, m] with w. A second store has ReLU of the sum plus the residual.
Program convolution(const Conv& c) {
  Pieces p("conv");
  const View x = p.input("x", {1, c.groups * c.in, p.n, p.m});
  const std::vector<int64_t> shape = {c.groups * c.out, c.in, c.taps, c.taps};
  const View w = c.weights ? p.weight("w", shape, 5) : p.input("w", {shape.begin(), shape.end()});
  const int64_t reach = (c.taps - 1) * c.dilation;
  auto size = [&](Expr e) { return sym::floordiv(e + 2 * c.pad - reach - 1, c.stride) + 1; };
  const Expr h = size(p.n), width = size(p.m);
  p.program.facts.set_range(p.n, 3, 64);
  p.program.facts.set_range(p.m, 3, 64);
  const View padded = *pad(x, {0, 0, c.pad, c.pad}, {0, 0, c.pad, c.pad}, float_scalar(DType::kF32, 0));
  const View out = p.temporary("t", {1, c.groups * c.out, h, width});
  NestBuilder nest(p.program, "conv");
  std::vector<Expr> at = {0};
  const Expr g = c.groups == 1 ? Expr(0) : nest.dim(c.groups, "g");
  at.push_back(g * c.out + nest.dim(c.out, "c"));
  at.push_back(nest.dim(h, "y"));
  at.push_back(nest.dim(width, "x"));
  const Value sum = nest.reduce(Combine::kSum, {c.in, c.taps, c.taps}, [&](const std::vector<Expr>& k) {
    return nest.load(padded, {0, g * c.in + k[0], at[2] * c.stride + k[1] * c.dilation,
                              at[3] * c.stride + k[2] * c.dilation}) *
           nest.load(w, {at[1], k[0], k[1], k[2]});
  });
  const Value shifted = sum + nest.index_value(at[2], DType::kF32);
  nest.store(out, at, max(shifted, nest.constant(DType::kF32, 0)));
  nest.finish();
  p.output("y", out);
  return p.program;
}

Program converted(const Program& before, int m, std::string* reason) {
  return testing::with_first_nest_replaced(before, [&](Program& program, const Nest& nest) {
    return schedule::winograd(program, nest, m, reason);
  });
}

// The largest difference of all outputs, relative to the largest result.
double error(const Program& before, Program after, int64_t h, int64_t w) {
  schedule::plan_memory(after);
  HostTensor x = make_tensor(DType::kF32, {1, *sym::as_const(before[before.inputs[0]].shape[1]), h, w});
  for (int64_t i = 0; i < element_count(x); ++i) set_number(x, i, std::sin(static_cast<double>(3 * i + 1)));
  const auto a = interpret(before, {x}, {.poison = true}),
             b = interpret(after, {x}, {.poison = true, .planned = true});
  double error = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    REQUIRE(a[k].shape == b[k].shape);
    double largest = 1e-30, difference = 0;
    for (int64_t i = 0; i < element_count(a[k]); ++i) {
      largest = std::max(largest, std::fabs(get_number(a[k], i)));
      difference = std::max(difference, std::fabs(get_number(a[k], i) - get_number(b[k], i)));
      if (std::isnan(get_number(b[k], i))) return 1;
    }
    error = std::max(error, difference / largest);
  }
  return error;
}

std::string refusal(const Conv& conv) {
  std::string reason;
  const Program before = convolution(conv);
  CHECK(converted(before, 4, &reason).steps.size() == before.steps.size());
  return reason;
}

}  // namespace

TEST_CASE("a 3x3 convolution is a batch of products between two transforms") {
  std::string reason;
  const Program before = convolution({}), after = converted(before, 2, &reason);
  REQUIRE(after.steps.size() == before.steps.size() + 2);
  CHECK(after.prepack.size() == 1);
  CHECK(to_string(after, after[std::get<Launch>(after.steps[1].node).nest]) ==
        R"(nest conv (%q<16, %c0<4, %y1<(n + 1)//2, %x2<(m + 1)//2)
  %3 : f32 = reduce sum (%r3<3)
    %0 : f32 = load t5[%q, %y1, %x2, %r3]
    %1 : f32 = load w.winograd[%q, %r3, %c0]
    %2 : f32 = mul %0 %1
    yield %2
  store t6[%q, %y1, %x2, %c0] %3
)");
}

TEST_CASE("tiles of 2x2 and 4x4 give what the convolution gives, also at the borders") {
  for (int m : {2, 4})
    for (const Conv& conv :
         {Conv{}, Conv{.in = 5, .out = 2}, Conv{.pad = 0}, Conv{.pad = 2}, Conv{.groups = 2, .in = 2}}) {
      std::string reason;
      const Program before = convolution(conv), after = converted(before, m, &reason);
      CAPTURE(reason);
      REQUIRE(after.steps.size() == before.steps.size() + 2);
      for (auto [h, w] : {std::pair<int64_t, int64_t>{3, 3}, {4, 7}, {5, 4}, {9, 6}, {8, 16}}) {
        CAPTURE(cat(m, " ", conv.pad, " ", h, " ", w));
        CHECK(error(before, after, h, w) < 1e-5);
      }
    }
}

TEST_CASE("other convolutions give the reason why not") {
  const std::string window = "the window is not 3x3, stride 1";
  CHECK(refusal({.taps = 2}) == window);
  CHECK(refusal({.stride = 2}) == window);
  CHECK(refusal({.dilation = 2}) == window);
  CHECK(refusal({.weights = false}) == "the weights are not constant");
}

TEST_CASE("few channels and a single output are left alone") {
  Program program = convolution({});
  const size_t before = program.steps.size();
  std::vector<schedule::Decision> decisions;
  schedule::apply_winograd(program, &decisions);
  loop::eliminate_dead_code(program);
  CHECK(program.steps.size() == before);
  REQUIRE(decisions.size() == 1);
  CHECK(!decisions[0].fused);
  Program large = convolution({.in = 128, .out = 128});
  for (const char* name : {"n", "m"}) large.facts.set_range(sym::var(name), 32, 64);
  schedule::apply_winograd(large);
  loop::eliminate_dead_code(large);
  CHECK(large.steps.size() == before + 2);
}

TEST_CASE("where small sizes are faster as they are and large ones in tiles, the run decides") {
  // Many weights (tiles have four times as many) for few points.
  Program after = convolution({.in = 64, .out = 64});
  const Program before = after;
  std::vector<schedule::Decision> decisions;
  schedule::apply_winograd(after, &decisions);
  loop::eliminate_dead_code(after);
  verify(after);
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].reason == "tiles of 4x4, and none where sizes are small");
  REQUIRE(std::holds_alternative<If>(after.steps[0].node));
  const If& choice = std::get<If>(after.steps[0].node);
  CHECK(choice.then_steps.size() == 3);
  CHECK(choice.else_steps.size() == 1);
  const auto tiled = [&](int64_t h, int64_t w) {
    const auto holds = sym::evaluate(choice.condition,
                                     [&](Expr var) { return std::optional(var == sym::var("n") ? h : w); });
    return holds.value() != 0;
  };
  CHECK(tiled(64, 64));
  CHECK(tiled(20, 20));
  CHECK(!tiled(3, 3));
  CHECK(!tiled(5, 6));
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{3, 3}, {5, 7}, {17, 16}, {20, 23}}) {
    CAPTURE(cat(h, " ", w));
    CHECK(error(before, after, h, w) < 1e-5);
  }
  // Known sizes, and ranges that exclude small sizes, need only one of the two versions.
  Program large = before;
  for (const char* name : {"n", "m"}) large.facts.set_range(sym::var(name), 32, 64);
  schedule::apply_winograd(large);
  loop::eliminate_dead_code(large);
  CHECK(large.steps.size() == before.steps.size() + 2);
}

namespace {

// 3x3 convolutions of x [1, in, n, m], each with its own epilogue, and one of `in` channels that adds the
// first result.
Program siblings(int64_t in, const std::vector<int64_t>& outs, bool residual = false) {
  Pieces p("siblings");
  p.program.facts.set_range(p.n, 32, 64);
  p.program.facts.set_range(p.m, 32, 64);
  const View x = p.input("x", {1, in, p.n, p.m});
  const View padded = *pad(x, {0, 0, 1, 1}, {0, 0, 1, 1}, float_scalar(DType::kF32, 0));
  std::optional<View> first;
  for (size_t i = 0; i < outs.size(); ++i) {
    const View w = p.weight(cat("w", i), {outs[i], in, 3, 3}, static_cast<uint32_t>(5 + i));
    const View out = p.temporary(cat("t", i), {1, outs[i], p.n, p.m});
    NestBuilder nest(p.program, cat("conv", i));
    std::vector<Expr> at = nest.dims({outs[i], p.n, p.m});
    at.insert(at.begin(), 0);
    Value value = nest.reduce(Combine::kSum, {in, 3, 3}, [&](const std::vector<Expr>& k) {
      return nest.load(padded, {0, k[0], at[2] + k[1], at[3] + k[2]}) *
             nest.load(w, {at[1], k[0], k[1], k[2]});
    });
    if (i == 1) value = max(value, nest.constant(DType::kF32, 0));
    if (i == 2) value = value * nest.index_value(at[3], DType::kF32);
    if (residual && first) value = value + nest.load(*first, at);
    nest.store(out, at, value);
    nest.finish();
    if (!first) first = out;
    p.output(cat("y", i), out);
  }
  return p.program;
}

struct Applied {
  Program program;
  std::vector<schedule::Decision> decisions;
};
Applied applied(const Program& before) {
  Applied out{before, {}};
  schedule::apply_winograd(out.program, &out.decisions);
  loop::eliminate_dead_code(out.program);
  verify(out.program);
  for (bool strips : {false, true}) {
    if (strips) schedule::tile_and_fuse(out.program);
    verify(out.program);
    CAPTURE(to_string(out.program));
    for (auto [h, w] : {std::pair<int64_t, int64_t>{32, 33}, {37, 35}})
      CHECK(error(before, out.program, h, w) < 1e-5);
  }
  return out;
}

}  // namespace

TEST_CASE("convolutions of one value share a transform and a product") {
  const Program before = siblings(32, {16, 7, 9});
  const Applied after = applied(before);
  REQUIRE(after.decisions.size() == 3);
  CHECK(after.decisions[0].reason == "one transform of what both read, and 85 % of their time");
  CHECK(after.decisions[2].producer == "conv0+conv1+conv2");
  CHECK(after.program.prepack.size() == 3);
  // One input transform, one GEMM of 32 columns, three output transforms, tiled and fused.
  REQUIRE(tiled_groups_of(after.program).size() == 1);
  const TiledGroup* strips = tiled_groups_of(after.program)[0];
  REQUIRE(strips->body.size() == 5);
  const Nest& product = after.program[std::get<Launch>(strips->body[1].node).nest];
  CHECK(std::any_of(product.dims.begin(), product.dims.end(),
                    [](const Dim& dim) { return dim.extent.is_const(32); }));
}

TEST_CASE("convolutions that share no transform") {
  const auto reason = [](const Program& before) {
    for (const schedule::Decision& decision : applied(before).decisions)
      if (decision.consumer != "winograd") return decision.reason;
    return std::string();
  };
  CHECK(reason(siblings(64, {100, 50})) ==
        "one transform of what both read, and 92 % of their time, but the weights of both would be too large "
        "for a cache");
  CHECK(reason(siblings(32, {32, 32}, true)) == "a step between them prevents it");
}

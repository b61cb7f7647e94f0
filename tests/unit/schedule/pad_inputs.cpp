#include "compiler/schedule/layout/pad_inputs.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

struct Window {
  int64_t channels, taps, stride, before, after, dilation = 1;
  double fill = 0;
  bool depthwise = false;
};

// y[o, i] = sum over c, r of x[c, stride*i + dilation*r - before] * w[o, c, r]; x has length n.
Program convolution(const Window& w) {
  Pieces p("convolution");
  const View x = p.input("x", {w.channels, p.n});
  const View weight = p.weight("w", {w.depthwise ? w.channels : 4, w.channels, w.taps}, 7);
  NestBuilder nest(p.program, "conv");
  const Expr size = sym::floordiv(p.n + w.before + w.after - w.dilation * (w.taps - 1) - 1, w.stride) + 1;
  const View out = p.temporary("t", {w.depthwise ? w.channels : 4, sym::max(0, size)});
  const auto at = nest.dims(out.shape);
  const View padded = *pad(x, {0, w.before}, {0, w.after}, float_scalar(DType::kF32, w.fill));
  const Value sum =
      nest.reduce(Combine::kSum, {w.depthwise ? 1 : w.channels, w.taps}, [&](const std::vector<Expr>& k) {
        return nest.load(padded, {w.depthwise ? at[0] : k[0], w.stride * at[1] + w.dilation * k[1]}) *
               nest.load(weight, {at[0], k[0], k[1]});
      });
  nest.store(out, at, sum);
  nest.finish();
  p.output("y", out);
  return p.program;
}

Program rewritten(const Program& program, schedule::Few few = schedule::Few::kChannels) {
  Program after = program;
  schedule::pad_inputs(after, few);
  verify(after);
  return after;
}

}  // namespace

TEST_CASE("a convolution of few channels reads a padded copy, without a mask") {
  const Program after =
      rewritten(convolution({.channels = 3, .taps = 3, .stride = 1, .before = 1, .after = 1}));
  REQUIRE(after.steps.size() == 3);
  const Nest& conv = after[std::get<Launch>(after.steps[1].node).nest];
  CHECK(to_string(after, conv) == R"(nest conv (%i0<4, %i1<n)
  %3 : f32 = reduce sum (%r2<3, %r3<3)
    %0 : f32 = load x.padded[%r2, %i1 + %r3]
    %1 : f32 = load w[%i0, %r2, %r3]
    %2 : f32 = mul %0 %1
    yield %2
  store t[%i0, %i1] %3
)");
}

TEST_CASE("padded copies give what the masks gave, for every stride, dilation, padding and size") {
  for (const int64_t taps : {2, 3, 7})
    for (const int64_t stride : {1, 2, 3})
      for (const auto& [before, after] : {std::pair<int64_t, int64_t>{0, 1}, {1, 0}, {2, 3}})
        for (const int64_t dilation : {1, 2}) {
          const Program program = convolution({.channels = 3,
                                               .taps = taps,
                                               .stride = stride,
                                               .before = before,
                                               .after = after,
                                               .dilation = dilation});
          Program copied = rewritten(program);
          schedule::plan_memory(copied);
          // If a window can be entirely in the padding or not at all, the mask belongs to the result instead
          // of the tap.
          if (taps == 7) CHECK(copied.steps.size() == program.steps.size() + 1);
          for (const int64_t n : {1, 2, 9, 16})
            CHECK(same_results(program, copied, {{sym::var("n"), n}, {sym::var("m"), 1}}));
        }
}

TEST_CASE("convolutions to few channels read rows of a padded copy") {
  for (const int64_t stride : {1, 2, 3, 4, 5})
    for (const int64_t dilation : {1, 2}) {
      const Program program = convolution({.channels = 20,
                                           .taps = 4 * stride + 3,
                                           .stride = stride,
                                           .before = 3,
                                           .after = 2,
                                           .dilation = dilation});
      Program copied = rewritten(program, schedule::Few::kResults);
      CHECK(copied.steps.size() == program.steps.size() + (stride < 5));
      schedule::plan_memory(copied);
      for (const int64_t n : {1, 2, 9, 16, 50})
        CHECK(same_results(program, copied, {{sym::var("n"), n}, {sym::var("m"), 1}}));
    }
  // Few multiply-adds for each element, no padding, other fills, groups.
  for (const Window& w :
       {Window{.channels = 20, .taps = 3, .stride = 1, .before = 1, .after = 1},
        Window{.channels = 20, .taps = 7, .stride = 2, .before = 1, .after = 1},
        Window{.channels = 20, .taps = 7, .stride = 1, .before = 0, .after = 0},
        Window{.channels = 20, .taps = 7, .stride = 1, .before = 3, .after = 3, .fill = 1},
        Window{.channels = 20, .taps = 7, .stride = 1, .before = 3, .after = 3, .depthwise = true}}) {
    const Program program = convolution(w);
    CHECK(rewritten(program, schedule::Few::kResults).steps.size() == program.steps.size());
  }
}

TEST_CASE("convolutions in a tiled group keep their masks") {
  Program program = convolution({.channels = 20, .taps = 7, .stride = 1, .before = 3, .after = 2});
  TiledGroup group{.name = "rows",
                   .first = sym::var("strip.first"),
                   .size = sym::var("strip.1to4"),
                   .points = sym::var("n"),
                   .least = 1,
                   .most = 4};
  group.body.push_back(program.steps[0]);
  program.steps[0].node = group;
  const std::string before = to_string(program);
  schedule::pad_inputs(program, schedule::Few::kResults);
  CHECK(to_string(program) == before);
}

TEST_CASE("rows of results two elements apart read a copy by phases, whose neighbours are side by side") {
  const Program after =
      rewritten(convolution({.channels = 20, .taps = 9, .stride = 2, .before = 4, .after = 4}),
                schedule::Few::kResults);
  const Nest& conv = after[std::get<Launch>(after.steps[1].node).nest];
  const std::string text = to_string(after, conv);
  CAPTURE(text);
  CHECK(text.find("load x.padded[%r2, mod(%r3, 2), %i1 + %r3//2]") != std::string::npos);
}

TEST_CASE("images padded by themselves, or read in larger ones, are copied as they are read") {
  const Expr n = sym::var("n");
  struct Reading {
    std::string name;
    std::function<Expr(Expr)> place;
    std::function<Expr(Expr)> mask = [](Expr) { return Expr(1); };
  };
  const Reading readings[] = {{"edges", [&](Expr i) { return sym::min(sym::max(i, 0), n - 1); }},
                              {"other end", [&](Expr i) { return sym::mod(i + 4 * n, n); }},
                              {"reflected",
                               [&](Expr i) {
                                 const Expr at = sym::mod(i + 8 * n, 2 * n);
                                 return sym::select(sym::lt(at, n), at, 2 * n - 1 - at);
                               }},
                              {"enlarged", [&](Expr i) { return sym::floordiv(i, 3); },
                               [&](Expr i) { return sym::logical_and(sym::le(0, i), sym::lt(i, 3 * n)); }}};
  // y[o, i] = sum over c<channels, r<3 of x[c, place(stride * i + r - 1)] * w[o, c, r], i < n.
  const auto convolution_of = [&](const Reading& reading, int64_t channels, int64_t stride, bool rows) {
    Pieces p("convolution");
    p.program.facts.set_range(p.n, 1, 1000);
    const View x = p.input("x", {channels, p.n});
    const View weight = p.weight("w", {4, channels, 3}, 7);
    NestBuilder nest(p.program, "conv");
    const View out = p.temporary("t", {4, p.n});
    const auto at = nest.dims(out.shape);
    View read = x;
    read.index[1] = reading.place(x.coords[1]);
    read.mask = reading.mask(x.coords[1]);
    read.fill = float_scalar(DType::kF32, 0);
    const Value sum = nest.reduce(Combine::kSum, {channels, 3}, [&](const std::vector<Expr>& k) {
      const Expr tap = rows ? k[1] - 1 : stride * at[1] + k[1] - 1;
      return nest.load(read, {k[0], tap}) * nest.load(weight, {at[0], k[0], k[1]});
    });
    nest.store(out, at, sum);
    nest.finish();
    p.output("y", out);
    return p.program;
  };
  for (const Reading& reading : readings)
    for (const int64_t stride : {1, 2}) {
      CAPTURE(reading.name);
      const Program program = convolution_of(reading, 3, stride, false);
      Program copied = rewritten(program);
      CHECK(copied.steps.size() == program.steps.size() + 1);
      const Nest& conv = copied[std::get<Launch>(copied.steps[1].node).nest];
      CAPTURE(to_string(copied, conv));
      CHECK(to_string(copied, conv)
                .find(stride == 1 ? "load x.padded[%r2, %i1 + %r3]\n"
                                  : "load x.padded[%r2, 2*%i1 + %r3]\n") != std::string::npos);
      schedule::plan_memory(copied);
      for (const int64_t size : {1, 2, 9, 16})
        CHECK(same_results(program, copied, {{n, size}, {sym::var("m"), 1}}));
      // With many channels, each tap is a contiguous row anyway.
      const Program wide = convolution_of(reading, 16, stride, false);
      CHECK(rewritten(wide).steps.size() == wide.steps.size());
    }
  // No window: single taps.
  const Program taps = convolution_of(readings[0], 3, 1, true);
  CHECK(rewritten(taps).steps.size() == taps.steps.size());
}

TEST_CASE("many channels, groups, other fills and single taps keep their masks") {
  for (const Window& w :
       {Window{.channels = 16, .taps = 3, .stride = 1, .before = 1, .after = 1},
        Window{.channels = 3, .taps = 3, .stride = 1, .before = 1, .after = 1, .fill = 1},
        Window{.channels = 3, .taps = 3, .stride = 1, .before = 1, .after = 1, .depthwise = true},
        Window{.channels = 3, .taps = 1, .stride = 1, .before = 1, .after = 1}}) {
    const Program program = convolution(w);
    CHECK(rewritten(program).steps.size() == program.steps.size());
  }
}

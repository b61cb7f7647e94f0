#include "compiler/schedule/layout/contiguous_windows.h"

#include <doctest/doctest.h>

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
  int64_t channels = 3, taps = 7, stride = 2, pad = 3, dilation = 1;
  DType dtype = DType::kF16;
  bool constant = true;  // of the weights
  int64_t fill = 0;
  int64_t columns = 5;
  bool computed = false;  // the weight is computed in the run, from an input
};

// y[b, o, i, j] of x [2, channels, n, m]; operands have type `dtype`, sums are f32 or i32.
Program convolution(const Window& w) {
  Pieces p("convolution");
  const View x = p.input("x", {2, w.channels, p.n, p.m}, w.dtype);
  const std::vector<int64_t> shape = {w.columns, w.channels, w.taps, w.taps};
  View weight = w.constant ? p.weight("w", shape, 7) : p.input("w", {shape.begin(), shape.end()}, w.dtype);
  if (w.constant && w.dtype != DType::kF32) {
    const View wide = weight;
    weight = whole(p.program, add_buffer(p.program, {.name = "narrow",
                                                     .dtype = w.dtype,
                                                     .shape = wide.shape,
                                                     .storage = Storage::kParameter,
                                                     .prepacked = true}));
    NestBuilder cast(p.program, "cast");
    const auto at = cast.dims(wide.shape);
    cast.store(
        weight, at,
        cast.cast(cast.load(wide, at) * cast.constant(DType::kF32, is_float(w.dtype) ? 1 : 9), w.dtype));
    p.program.prepack.push_back(add_nest(p.program, cast.nest()));
  }
  if (w.computed) {
    const View made = p.temporary("made", weight.shape, w.dtype);
    NestBuilder copy(p.program, "make");
    const auto at = copy.dims(weight.shape);
    copy.store(made, at, copy.load(weight, at));
    copy.finish();
    weight = made;
  }
  NestBuilder nest(p.program, "conv");
  auto size = [&](Expr n) {
    return sym::max(0, sym::floordiv(n + 2 * w.pad - w.dilation * (w.taps - 1) - 1, w.stride) + 1);
  };
  const DType sums = is_float(w.dtype) ? DType::kF32 : DType::kI32;
  const View out = p.temporary("t", {2, w.columns, size(p.n), size(p.m)}, sums);
  const auto at = nest.dims(out.shape);
  const View padded =
      *pad(x, {0, 0, w.pad, w.pad}, {0, 0, w.pad, w.pad}, float_scalar(w.dtype, static_cast<double>(w.fill)));
  const Value sum = nest.reduce(Combine::kSum, {w.channels, w.taps, w.taps}, [&](const std::vector<Expr>& k) {
    return nest.cast(nest.load(padded, {at[0], k[0], w.stride * at[2] + w.dilation * k[1],
                                        w.stride * at[3] + w.dilation * k[2]}),
                     sums) *
           nest.cast(nest.load(weight, {at[1], k[0], k[1], k[2]}), sums);
  });
  nest.store(out, at, sum);
  nest.finish();
  p.output("y", out);
  verify(p.program);
  return p.program;
}

// The gradient of the weight, from that of the result, d: g[o, c, r, s], or one for each image.
Program gradient(const Window& w, bool by_image) {
  Pieces p("gradient");
  const View x = p.input("x", {2, w.channels, p.n, p.m}, w.dtype);
  auto size = [&](Expr n) {
    return sym::max(0, sym::floordiv(n + 2 * w.pad - w.dilation * (w.taps - 1) - 1, w.stride) + 1);
  };
  const Expr rows = size(p.n), columns = size(p.m);
  const View d = p.input("d", {2, w.columns, rows, columns}, w.dtype);
  std::vector<Expr> shape = {w.channels, w.columns, w.taps, w.taps};
  if (by_image) shape.push_back(2);
  const View out = p.temporary("t", shape);
  NestBuilder nest(p.program, "conv");
  const auto at = nest.dims(shape);
  const View padded = *pad(x, {0, 0, w.pad, w.pad}, {0, 0, w.pad, w.pad}, float_scalar(w.dtype, 0));
  std::vector<Expr> extents = {rows, columns};
  if (!by_image) extents.push_back(2);
  const Value sum = nest.reduce(Combine::kSum, extents, [&](const std::vector<Expr>& k) {
    const Expr image = by_image ? at[4] : k[2];
    return nest.cast(nest.load(padded, {image, at[0], w.stride * k[0] + w.dilation * at[2],
                                        w.stride * k[1] + w.dilation * at[3]}),
                     DType::kF32) *
           nest.cast(nest.load(d, {image, at[1], k[0], k[1]}), DType::kF32);
  });
  nest.store(out, at, sum);
  nest.finish();
  p.output("y", out);
  verify(p.program);
  return p.program;
}

Program rewritten(const Program& program) {
  Program after = program;
  schedule::make_windows_contiguous(after);
  verify(after);
  return after;
}

}  // namespace

TEST_CASE("a window's row of few channels is a run of whole pieces of 16 bytes") {
  const Program after = rewritten(convolution({}));
  REQUIRE(after.steps.size() == 3);
  const Nest& conv = after[std::get<Launch>(after.steps[1].node).nest];
  const std::string text = to_string(after, conv);
  CAPTURE(text);
  CHECK(text.find("reduce sum (%i4<7, %i5<32)") != std::string::npos);
  CHECK(text.find("load x.rows[%i0, 2*%i2 + %i4, 8*%i3 + %i5]\n") != std::string::npos);
  CHECK(text.find("load narrow.rows[%i1, %i4, %i5]") != std::string::npos);
}

TEST_CASE("runs give what windows gave, for every stride, padding and size") {
  for (const int64_t channels : {1, 2, 3, 4, 7})
    for (const int64_t taps : {2, 3, 7})
      for (const int64_t stride : {1, 2, 3, 4, 16})
        for (const int64_t pad : {0, 1, 3}) {
          CAPTURE(channels);
          CAPTURE(taps);
          CAPTURE(stride);
          CAPTURE(pad);
          const Program before =
              convolution({.channels = channels, .taps = taps, .stride = stride, .pad = pad});
          Program after = rewritten(before);
          // If a window can be entirely in the padding, the mask belongs to the result.
          if (taps == 7) CHECK(after.steps.size() == before.steps.size() + 1);
          schedule::plan_memory(after);
          for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {7, 10}, {13, 8}})
            CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
        }
}

TEST_CASE("bytes, and padding that is not 0") {
  for (const DType dtype : {DType::kU8, DType::kI8})
    for (const int64_t channels : {1, 3, 6})
      for (const int64_t stride : {1, 2, 4}) {
        CAPTURE(channels);
        CAPTURE(stride);
        const Program before =
            convolution({.channels = channels, .stride = stride, .dtype = dtype, .fill = 77});
        Program after = rewritten(before);
        CHECK(after.steps.size() == before.steps.size() + 1);
        schedule::plan_memory(after);
        for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {7, 10}})
          CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
      }
}

TEST_CASE("channels-first data are copied to channels-last where they are read often enough") {
  for (const DType dtype : {DType::kF16, DType::kU8, DType::kTF32})
    for (const int64_t channels : {8, 20, 33}) {
      CAPTURE(channels);
      const Window often{
          .channels = channels, .taps = 3, .stride = 1, .pad = 1, .dtype = dtype, .columns = 24};
      const Program before = convolution(often);
      Program after = rewritten(before);
      // If the channels of a tap are less than a piece, the rewrite always applies.
      REQUIRE(after.steps.size() == before.steps.size() + 1);
      schedule::plan_memory(after);
      for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {7, 10}})
        CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
      Window seldom = often;
      seldom.columns = 4;
      if (channels > 16) CHECK(rewritten(convolution(seldom)).steps.size() == before.steps.size());
    }
}

TEST_CASE("a weight that the run computes is padded in the run") {
  for (const int64_t stride : {1, 2}) {
    const Program before = convolution({.stride = stride, .constant = false, .computed = true});
    Program after = rewritten(before);
    CHECK(after.steps.size() == before.steps.size() + 2);
    schedule::plan_memory(after);
    CHECK(same_results(before, after, {{sym::var("n"), 7}, {sym::var("m"), 10}}));
  }
}

TEST_CASE("the gradient of a weight of few channels is computed for padded rows") {
  for (const bool by_image : {true, false})
    for (const int64_t channels : {1, 2, 3})
      for (const int64_t taps : {2, 3, 7})
        for (const int64_t stride : {1, 2, 4}) {
          CAPTURE(channels);
          CAPTURE(taps);
          CAPTURE(stride);
          const Program before =
              gradient({.channels = channels, .taps = taps, .stride = stride, .pad = taps / 2}, by_image);
          Program after = rewritten(before);
          CHECK(after.steps.size() == before.steps.size() + 1);
          schedule::plan_memory(after);
          for (const auto& [n, m] : {std::pair<int64_t, int64_t>{7, 10}, {13, 8}})
            CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
        }
  for (const Window& w : {Window{.channels = 8}, Window{.dilation = 2}, Window{.dtype = DType::kF32}}) {
    const Program program = gradient(w, true);
    CHECK(rewritten(program).steps.size() == program.steps.size());
  }
}

TEST_CASE("whole pieces, dilated rows, wide factors and weights that are inputs stay as they are") {
  for (const Window& w : {Window{.channels = 8, .columns = 2}, Window{.dilation = 2},
                          Window{.dtype = DType::kF32}, Window{.constant = false}}) {
    const Program program = convolution(w);
    CHECK(rewritten(program).steps.size() == program.steps.size());
  }
}

#include "compiler/schedule/algebra/nonzero_padding.h"

#include <doctest/doctest.h>

#include "compiler/base/gpu_target.h"
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
  int64_t taps = 3, stride = 1, pad = 1, dilation = 1;
  DType data = DType::kU8;
  int64_t fill = 117;
  bool constant = true;  // of the weights
  int64_t groups = 1;
};

// y[b, o, i, j] i32 of x [2, 4 * groups, n, m] and int8 weights; the padding has value `fill`.
Program convolution(const Window& w) {
  Pieces p("convolution");
  const View x = p.input("x", {2, 4 * w.groups, p.n, p.m}, w.data);
  const std::vector<int64_t> shape = {w.groups, 5, 4, w.taps, w.taps};
  View weight = p.input("w", {shape.begin(), shape.end()}, DType::kI8);
  if (w.constant) {
    const View wide = p.weight("v", shape, 7);
    weight = whole(p.program, add_buffer(p.program, {.name = "bytes",
                                                     .dtype = DType::kI8,
                                                     .shape = wide.shape,
                                                     .storage = Storage::kParameter,
                                                     .prepacked = true}));
    NestBuilder cast(p.program, "cast");
    const auto at = cast.dims(wide.shape);
    cast.store(weight, at, cast.cast(cast.load(wide, at) * cast.constant(DType::kF32, 50), DType::kI8));
    p.program.prepack.push_back(add_nest(p.program, cast.nest()));
  }
  NestBuilder nest(p.program, "conv");
  auto size = [&](Expr n) {
    return sym::max(0, sym::floordiv(n + 2 * w.pad - w.dilation * (w.taps - 1) - 1, w.stride) + 1);
  };
  const View out = p.temporary("t", {2, w.groups, 5, size(p.n), size(p.m)}, DType::kI32);
  const auto at = nest.dims(out.shape);
  const View padded = *pad(x, {0, 0, w.pad, w.pad}, {0, 0, w.pad, w.pad}, int_scalar(w.data, w.fill));
  const Value sum = nest.reduce(Combine::kSum, {4, w.taps, w.taps}, [&](const std::vector<Expr>& k) {
    return nest.cast(nest.load(padded, {at[0], 4 * at[1] + k[0], w.stride * at[3] + w.dilation * k[1],
                                        w.stride * at[4] + w.dilation * k[2]}),
                     DType::kI32) *
           nest.cast(nest.load(weight, {at[1], at[2], k[0], k[1], k[2]}), DType::kI32);
  });
  nest.store(out, at, sum - nest.constant(DType::kI32, 3));
  nest.finish();
  p.output("y", out);
  verify(p.program);
  return p.program;
}

Program taken_out(const Program& program, const char* target = "sm_90a") {
  Program after = program;
  schedule::remove_nonzero_padding(after, gpu_target(target));
  verify(after);
  return after;
}

bool is_changed(const Program& before) { return to_string(taken_out(before)) != to_string(before); }

}  // namespace

TEST_CASE(
    "what padding adds to a sum is looked up where a window reaches beyond the image, and nowhere else") {
  const Program after = taken_out(convolution({}));
  const std::string text = to_string(after, after[std::get<Launch>(after.steps[0].node).nest]);
  CAPTURE(text);
  CHECK(text.find("else 117") == std::string::npos);
  CHECK(text.find("bytes.border[") != std::string::npos);
  for (const Buffer& buffer : after.buffers)
    if (buffer.name == "bytes.border") {
      CHECK(element_count(buffer.shape).is_const(16 * 5));  // one tap before and one after, in two dims
    }
}

TEST_CASE("sums are the same for every window, padding, type and size") {
  for (const int64_t taps : {2, 3, 5})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t pad : {1, 2, 4})
        for (const int64_t dilation : {1, 2}) {
          CAPTURE(taps);
          CAPTURE(stride);
          CAPTURE(pad);
          CAPTURE(dilation);
          const bool is_signed = (taps + stride + pad) % 2;
          const Program before = convolution({.taps = taps,
                                              .stride = stride,
                                              .pad = pad,
                                              .dilation = dilation,
                                              .data = is_signed ? DType::kI8 : DType::kU8,
                                              .fill = is_signed ? -7 : 200,
                                              .groups = dilation});
          Program after = taken_out(before);
          // If a window can be entirely in the padding, the mask belongs to the result.
          if (pad <= dilation * (taps - 1)) CHECK(to_string(after) != to_string(before));
          schedule::plan_memory(after);
          for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {2, 9}, {13, 4}, {0, 3}})
            CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
        }
}

TEST_CASE("zeros, windows without padding and weights that are inputs stay as they are") {
  CHECK(is_changed(convolution({})));
  CHECK_FALSE(is_changed(convolution({.fill = 0})));
  CHECK_FALSE(is_changed(convolution({.pad = 0})));
  CHECK_FALSE(is_changed(convolution({.constant = false})));
}

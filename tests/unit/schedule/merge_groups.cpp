#include "compiler/schedule/algebra/merge_groups.h"

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

// y [n, groups*columns, m] = grouped convolution of x [n, groups*channels, m] with 3 taps, plus a bias.
Program grouped(int64_t groups, int64_t channels, int64_t columns, DType dtype = DType::kF16) {
  Pieces p("grouped");
  const View x = p.input("x", {p.n, groups * channels, p.m}, dtype);
  const View wide = p.weight("w", {groups, columns, channels, 3}, 1),
             bias = p.weight("bias", {groups, columns}, 2);
  const View w = whole(p.program, add_buffer(p.program, {.name = "narrow",
                                                         .dtype = dtype,
                                                         .shape = wide.shape,
                                                         .storage = Storage::kParameter,
                                                         .prepacked = true}));
  NestBuilder cast(p.program, "cast");
  const auto all = cast.dims(wide.shape);
  cast.store(w, all, cast.cast(cast.load(wide, all), dtype));
  p.program.prepack.push_back(add_nest(p.program, cast.nest()));
  NestBuilder nest(p.program, "conv");
  const View out = p.temporary("out", {p.n, groups * columns, p.m});
  const auto at = nest.dims({p.n, groups, columns, p.m});
  const Value sum = nest.reduce(Combine::kSum, {channels, 3}, [&](const std::vector<Expr>& k) {
    const Expr place = at[3] + k[1] - 1;
    const Access tap{x.buffer,
                     {at[0], channels * at[1] + k[0], place},
                     sym::logical_and(sym::le(0, place), sym::lt(place, p.m))};
    return nest.cast(nest.load(tap, float_scalar(dtype, 0)), DType::kF32) *
           nest.cast(nest.load(w, {at[1], at[2], k[0], k[1]}), DType::kF32);
  });
  nest.store(out, {at[0], columns * at[1] + at[2], at[3]}, sum + nest.load(bias, {at[1], at[2]}));
  nest.finish();
  p.output("y", out);
  verify(p.program);
  return p.program;
}

// Expects the first launched nest to have `groups` groups after the pass.
Program joined(const Program& before, int64_t groups) {
  Program after = before;
  schedule::merge_groups(after, gpu_target("sm_90a"));
  verify(after);
  const Nest& nest = after[std::get<Launch>(after.steps[0].node).nest];
  const bool several = nest.dims.size() == 4;
  CHECK_MESSAGE((several ? nest.dims[1].extent.is_const(groups) : groups == 1), to_string(after));
  schedule::plan_memory(after);
  for (const int64_t m : {0, 1, 5})
    CHECK(same_results(before, after, {{before.symbols[0].var, 2}, {before.symbols[1].var, m}}));
  return after;
}

}  // namespace

TEST_CASE("groups of few channels are joined, up to 64 channels and columns") {
  joined(grouped(32, 4, 4), 2);
  joined(grouped(32, 32, 32), 16);
  joined(grouped(8, 2, 8), 1);
  joined(grouped(24, 4, 2), 3);  // a divisor of the number of groups
  joined(grouped(6, 8, 16), 3);
}

TEST_CASE("groups that fill tiles, single channels and products by multiply-adds stay as they are") {
  joined(grouped(4, 64, 64), 4);
  joined(grouped(2, 40, 8), 2);
  joined(grouped(64, 1, 1), 64);
  joined(grouped(7, 4, 4), 7);
  joined(grouped(32, 4, 4, DType::kF32), 32);
}

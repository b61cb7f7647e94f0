#include "compiler/schedule/algebra/materialize_upsample.h"

#include <doctest/doctest.h>

#include <algorithm>

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

// y [n, columns, 2m, 8]: x [n, 3, m, 4], upsampled by two along both axes (nearest), convolved with 3 x 3
// taps and padding 1.
Program of_neighbours(int64_t columns, DType dtype = DType::kF16, bool constant_padding = true) {
  Pieces p("neighbours");
  const View x = p.input("x", {p.n, 3, p.m, 4}, dtype);
  const View wide = p.weight("w", {columns, 3, 3, 3}, 1);
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
  const View out = p.temporary("out", {p.n, columns, 2 * p.m, 8});
  const auto at = nest.dims({p.n, columns, 2 * p.m, 8});
  const Value sum = nest.reduce(Combine::kSum, {3, 3, 3}, [&](const std::vector<Expr>& k) {
    const Expr row = at[2] + k[1] - 1, column = at[3] + k[2] - 1;
    const auto inside = [](Expr e, Expr size) { return sym::logical_and(sym::le(0, e), sym::lt(e, size)); };
    Access tap{x.buffer,
               {at[0], k[0], sym::floordiv(row, 2), sym::floordiv(column, 2)},
               sym::logical_and(inside(row, 2 * p.m), inside(column, 8))};
    if (!constant_padding)  // edge padding
      tap = {x.buffer,
             {at[0], k[0], sym::max(0, sym::min(p.m - 1, sym::floordiv(row, 2))),
              sym::max(0, sym::min(3, sym::floordiv(column, 2)))},
             1};
    return nest.cast(nest.load(tap, float_scalar(dtype, 0)), DType::kF32) *
           nest.cast(nest.load(w, {at[1], k[0], k[1], k[2]}), DType::kF32);
  });
  nest.store(out, at, sum);
  nest.finish();
  p.output("y", out);
  verify(p.program);
  return p.program;
}

Program spread(const Program& before) {
  Program after = before;
  schedule::materialize_upsamples(after, gpu_target("sm_90a"));
  verify(after);
  return after;
}

}  // namespace

TEST_CASE("neighbours that a convolution reads are spread out before it") {
  const Program before = of_neighbours(32);
  Program after = spread(before);
  const auto wide = std::find_if(after.buffers.begin(), after.buffers.end(),
                                 [](const Buffer& b) { return b.name == "x.spread"; });
  REQUIRE_MESSAGE(wide != after.buffers.end(), to_string(after));
  const Expr n = before.symbols[0].var, m = before.symbols[1].var;
  CHECK(wide->shape == std::vector<Expr>{n, 3, 2 * m, 8});
  schedule::plan_memory(after);
  for (const int64_t size : {0, 1, 3}) CHECK(same_results(before, after, {{n, 2}, {m, size}}));
}

TEST_CASE(
    "few columns, products by multiply-adds and windows without known ends read neighbours where they are") {
  for (const Program& before :
       {of_neighbours(4), of_neighbours(32, DType::kF32), of_neighbours(32, DType::kF16, false)})
    CHECK(to_string(spread(before)) == to_string(before));
}

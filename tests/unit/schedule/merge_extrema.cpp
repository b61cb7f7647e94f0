#include "compiler/schedule/fusion/merge_extrema.h"

#include <doctest/doctest.h>

#include <cmath>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

struct Pool {
  int64_t taps = 3, stride = 2, channels = 64;
  DType dtype = DType::kBF16, passed = DType::kBF16;
  Combine first = Combine::kMax, second = Combine::kMax;
  bool again = false;          // the intermediate has another reader
  double outside = -HUGE_VAL;  // value of the padding
};

// x [n, m, m, channels]: the extremum over a window's rows, then over its columns.
Program pooled(const Pool& of) {
  Pieces p("pool");
  const Expr rows = sym::floordiv(p.m + of.stride - 1, of.stride);
  const View x = p.input("x", {p.n, p.m, p.m, of.channels}, of.dtype);
  const View part = p.temporary("part", {p.n, rows, p.m, of.channels}, of.passed);
  const View out = p.temporary("out", {p.n, rows, rows, of.channels}, of.dtype);
  const auto along = [&](size_t dim, const View& from, const View& to, Combine combine) {
    NestBuilder nest(p.program, "pool");
    const auto at = nest.dims(to.shape);
    const Value value = nest.reduce(combine, {of.taps}, [&](const std::vector<Expr>& k) {
      Access access{from.buffer, at, 1};
      access.index[dim] = at[dim] * of.stride + k[0] - of.taps / 2;
      access.mask = sym::logical_and(sym::le(0, access.index[dim]), sym::lt(access.index[dim], p.m));
      const DType wide = is_float(of.dtype) ? DType::kF32 : of.dtype;
      return nest.cast(nest.load(access, float_scalar(p.program[from.buffer].dtype, of.outside)), wide);
    });
    nest.store(to, at, nest.cast(value, p.program[to.buffer].dtype));
    nest.finish();
  };
  along(1, x, part, of.first);
  along(2, part, out, of.second);
  p.output("y", out);
  if (of.again) p.output("z", part);
  verify(p.program);
  return p.program;
}

Program joined(const Program& before) {
  Program after = before;
  schedule::merge_extrema(after, gpu_target("sm_90a"));
  loop::eliminate_dead_code(after);
  verify(after);
  return after;
}

}  // namespace

TEST_CASE("a small window along rows, then along columns becomes one along both") {
  for (const Pool& of : {Pool{}, Pool{.taps = 2}, Pool{.stride = 1}, Pool{.passed = DType::kF32},
                         Pool{.dtype = DType::kF32, .passed = DType::kF32},
                         Pool{.first = Combine::kMin, .second = Combine::kMin, .outside = HUGE_VAL}}) {
    const Program before = pooled(of);
    Program after = joined(before);
    CHECK(after.nests.size() + 1 == before.nests.size());
    const Expr n = before.symbols[0].var, m = before.symbols[1].var;
    schedule::plan_memory(after);
    for (const int64_t size : {0, 1, 4, 7}) CHECK(same_results(before, after, {{n, 2}, {m, size}}));
  }
}

TEST_CASE("bytes as well, padded with their least value") {
  const Program before = pooled({.dtype = DType::kU8, .passed = DType::kU8, .outside = 0});
  CHECK(joined(before).nests.size() + 1 == before.nests.size());
}

TEST_CASE("extrema stay separate where one nest would take longer or change the result") {
  for (const Pool& of : {Pool{.taps = 7, .stride = 1},  // 49 loads instead of 14
                         Pool{.channels = 3},           // not vectorised
                         Pool{.first = Combine::kMin},  // extrema of different kinds
                         Pool{.dtype = DType::kF32},    // rounding in between
                         Pool{.outside = 0},            // the padding affects the result
                         Pool{.again = true}}) {        // the intermediate is needed anyway
    const Program before = pooled(of);
    CHECK(to_string(joined(before)) == to_string(before));
  }
}

#include "compiler/schedule/layout/narrow_storage.h"

#include <doctest/doctest.h>

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

// A residual that is used in f32 and in f16, statistics of its rows, and their product with it. Buffers are
// "residual", "narrow", "mean", "y".
Program residual_block() {
  Pieces p("block");
  const View x = p.input("x", {p.n, p.m, 64}), b = p.input("b", {p.n, p.m, 64});
  const View residual = p.temporary("residual", {p.n, p.m, 64}),
             narrow = p.temporary("narrow", {p.n, p.m, 64}, DType::kF16),
             mean = p.temporary("mean", {p.n, p.m});
  {
    NestBuilder nest(p.program, "add");
    const auto at = nest.dims(residual.shape);
    const Value sum = nest.load(x, at) + nest.load(b, at);
    nest.store(residual, at, sum);
    nest.store(narrow, at, nest.cast(sum, DType::kF16));
    nest.finish();
  }
  {
    NestBuilder nest(p.program, "mean");
    const auto at = nest.dims(mean.shape);
    nest.store(mean, at, nest.reduce(Combine::kSum, {64}, [&](const std::vector<Expr>& k) {
      return nest.load(residual, {at[0], at[1], k[0]});
    }));
    nest.finish();
  }
  const View scaled = p.temporary("scaled", {p.n, p.m, 64});
  {
    NestBuilder nest(p.program, "scale");
    const auto at = nest.dims(scaled.shape);
    nest.store(scaled, at,
               (nest.cast(nest.load(narrow, at), DType::kF32) + nest.load(residual, at)) *
                   nest.load(mean, {at[0], at[1]}));
    nest.finish();
  }
  p.output("y", scaled);
  verify(p.program);
  return p.program;
}

const Buffer* find(const Program& program, const std::string& name) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.name == name) return &buffer;
  return nullptr;
}

}  // namespace

TEST_CASE(
    "large buffers between kernels hold what products take; sums stay wide; the same numbers are stored "
    "once") {
  const Program before = residual_block();
  Program after = before;
  schedule::narrow_storage(after, DType::kF16);
  loop::eliminate_dead_code(after);
  verify(after);
  CAPTURE(to_string(after));
  // Only one of the two buffers of the residual remains.
  const Buffer *residual = find(after, "residual"), *narrow = find(after, "narrow");
  REQUIRE((residual != nullptr) != (narrow != nullptr));
  CHECK((residual ? residual : narrow)->dtype == DType::kF16);
  REQUIRE(find(after, "mean"));
  CHECK(find(after, "mean")->dtype == DType::kF32);
  CHECK(find(after, "scaled")->dtype == DType::kF16);
  CHECK(find(after, "y")->dtype == DType::kF32);
  schedule::plan_memory(after);
  for (const int64_t n : {0, 1, 5}) {
    const Bindings sizes = {{sym::var("n"), n}, {sym::var("m"), 3}};
    const auto inputs = random_inputs(before, sizes, 3);
    const auto want = interpret(before, inputs, {.poison = true}),
               got = interpret(after, inputs, {.poison = true, .planned = true});
    CHECK(close(want, got, 2e-2));  // two roundings to f16 of values up to 256
    if (n) CHECK(!close(want, got, 1e-7));
  }
}

TEST_CASE("without a narrow type nothing changes; copies of rounded numbers are read where they came from") {
  const Program before = residual_block();
  Program same = before;
  schedule::narrow_storage(same, DType::kF32);
  CHECK(to_string(same) == to_string(before));
  schedule::narrow_storage(same, DType::kTF32);
  CHECK(to_string(same) == to_string(before));

  Pieces p("copies");
  const View x = p.input("x", {p.n, p.m, 64});
  const View wide = p.temporary("wide", {p.n, p.m, 64}),
             turned = p.temporary("turned", {p.m, 64, p.n}, DType::kF16);
  {
    NestBuilder nest(p.program, "make");
    const auto at = nest.dims(wide.shape);
    nest.store(wide, at, nest.load(x, at) + nest.load(x, at));
    nest.finish();
  }
  {
    NestBuilder nest(p.program, "turn");
    const auto at = nest.dims(turned.shape);
    nest.store(turned, at, nest.cast(nest.load(wide, {at[2], at[0], at[1]}), DType::kF16));
    nest.finish();
  }
  p.output("y", turned);
  Program after = p.program;
  schedule::narrow_storage(after, DType::kF16);
  loop::eliminate_dead_code(after);
  verify(after);
  CHECK(after.steps.size() == 2);
  CHECK(!find(after, "turned"));
  schedule::plan_memory(after);
  CHECK(same_results(p.program, after, {{sym::var("n"), 4}, {sym::var("m"), 5}}));
}

TEST_CASE("where nothing is computed in tf32 its numbers are f32, and nothing is rounded to them") {
  Pieces p("widened");
  const View x = p.input("x", {p.n, 64});
  const View short_x = p.temporary("short", {p.n, 64}, DType::kTF32), y = p.temporary("y", {p.n, 64});
  {
    NestBuilder nest(p.program, "round");
    const auto at = nest.dims(short_x.shape);
    nest.store(short_x, at, nest.cast(nest.load(x, at), DType::kTF32));
    nest.finish();
  }
  {
    NestBuilder nest(p.program, "use");
    const auto at = nest.dims(y.shape);
    const Value wide = nest.cast(nest.load(short_x, at), DType::kF32);
    nest.store(y, at, wide * nest.cast(nest.constant(DType::kTF32, 3), DType::kF32));
    nest.finish();
  }
  p.output("y", y);
  Program after = p.program;
  schedule::widen_tf32(after);
  verify(after);
  CHECK(to_string(after).find("tf32") == std::string::npos);
  const auto inputs = random_inputs(p.program, {{sym::var("n"), 4}, {sym::var("m"), 5}}, 3);
  const auto rounded = interpret(p.program, inputs), whole = interpret(after, inputs);
  CHECK(close(rounded, whole, 1e-3));
  CHECK(!close(rounded, whole, 1e-5));
}

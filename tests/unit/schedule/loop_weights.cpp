#include "compiler/schedule/algebra/loop_weights.h"

#include <doctest/doctest.h>

#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/fusion.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;
using testing::Pieces;

namespace {

// h [4] becomes h * (2 w) three times. `twice`: the converted weights have another reader.
Program recurrent(bool twice) {
  Pieces p("recurrent");
  const View x = p.input("x", {4}), w = p.weight("w", {4, 4}, 3);
  const View converted = p.map("converted", {w}, [](const auto& v) { return v[0] + v[0]; });
  const View h = p.map("start", {x}, [](const auto& v) { return v[0] + v[0]; });
  if (twice) p.output("more", converted);
  const View next = p.temporary("next", {4});
  While loop{
      .counter = sym::var("i"), .trip_count = 3, .condition = {}, .iterations = sym::var("ran"), .body = {}};
  NestBuilder product(p.program, "product");
  const Expr column = product.dim(4);
  product.store(next, {column}, product.reduce(Combine::kSum, {4}, [&](const std::vector<Expr>& k) {
    return product.load(h, {k[0]}) * product.load(converted, {k[0], column});
  }));
  product.finish(&loop.body);
  NestBuilder carried(p.program, "carried");
  const Expr at = carried.dim(4);
  carried.store(h, {at}, carried.load(next, {at}));
  carried.finish(&loop.body);
  p.program.steps.push_back({std::move(loop)});
  p.output("y", h);
  return p.program;
}

size_t steps_of_loop(const Program& program) {
  for (const Step& step : program.steps)
    if (const auto* loop = std::get_if<While>(&step.node)) return loop->body.size();
  return 0;
}

}  // namespace

TEST_CASE(
    "a loop's product reads its weights as they are stored, where fusion makes the conversion part of it") {
  const Program before = recurrent(false);
  Program after = before;
  schedule::sink_weights(after);
  verify(after);
  CHECK(after.steps.size() == before.steps.size() - 1);
  CHECK(steps_of_loop(after) == steps_of_loop(before) + 1);
  Program lifted = after;
  schedule::lift_weights(lifted);
  CHECK(lifted.steps.size() == before.steps.size());
  CHECK(steps_of_loop(lifted) == steps_of_loop(before));
  schedule::fuse(after);
  schedule::lift_weights(after);
  verify(after);
  CHECK(steps_of_loop(after) == steps_of_loop(before));
  const auto inputs = testing::random_inputs(before, {}, 1);
  CHECK(testing::close(interpret(before, inputs), interpret(after, inputs), 1e-5));
  CHECK(testing::close(interpret(before, inputs), interpret(lifted, inputs), 1e-5));
}

TEST_CASE("weights that others read as well are converted once") {
  Program program = recurrent(true);
  const size_t before = program.steps.size();
  schedule::sink_weights(program);
  CHECK(program.steps.size() == before);
}

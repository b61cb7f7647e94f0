#include "compiler/tune/shapes.h"

#include <doctest/doctest.h>

using namespace stridec;
using namespace stridec::tune;

TEST_CASE("a loop's counter is the last iteration at the other sizes, unless it is given") {
  const sym::Expr time = sym::var("time"), counter = sym::var("iteration"),
                  iterations = sym::var("iterations"), inner = sym::var("iteration.0"),
                  rest = sym::var("iterations.1");
  loop::Program program;
  for (const sym::Expr var : {time, counter, iterations, inner, rest})
    program.symbols.push_back({.var = var, .input = var == time ? 0 : -1, .dim = var == time ? 1 : -1});
  program.facts.set_range(time, 1, 512);
  // The inner loop's trip count is the outer loop's counter.
  program.steps = {{loop::While{
      .counter = counter,
      .trip_count = time * 2,
      .condition = {},
      .iterations = iterations,
      .body = {{loop::While{
          .counter = inner, .trip_count = counter, .condition = {}, .iterations = rest, .body = {}}}}}}};
  const auto sizes = [&](const std::vector<Sizes>& given, size_t at = 0) {
    std::vector<int64_t> values;
    for (const sym::Expr var : {time, counter, iterations, inner, rest})
      values.push_back(shapes_of(program, given)[at](var).value_or(-1));
    return values;
  };
  CHECK(sizes({{{"time", 2}}}) == std::vector<int64_t>{2, 3, 4, 2, 3});
  CHECK(sizes({{{"time", 2}, {"iteration", 0}}}) == std::vector<int64_t>{2, 0, 4, 0, 0});
  for (size_t i = 0; i < 2; ++i) {
    const auto own = sizes({}, i);
    CHECK(own[2] == 2 * own[0]);
    CHECK(own[1] == own[2] - 1);
  }
}

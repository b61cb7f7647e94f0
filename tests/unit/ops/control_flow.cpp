#include <doctest/doctest.h>

#include <limits>

#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "harness.h"

using namespace stridec;
using namespace stridec::ops::test;
using graph::OpKind;
using Ids = std::vector<ValueId>;

TEST_CASE("if runs one branch; shapes may differ") {
  for (double flag : {0.0, 1.0}) {
    const HostTensor x = sample(DType::kF32, {4, 3});
    check({.name = "if",
           .inputs = {tensor(DType::kBool, {}, {flag}), x},
           .build =
               [](Builder& b, const Ids& in) {
                 auto outputs = ops::if_else(
                     b, in[0], [&] { return Ids{ops::mul(b, in[1], 2.0), ops::slice(b, in[1], 0, 0, 2)}; },
                     [&] { return Ids{in[1], ops::neg(b, ops::slice(b, in[1], 0, 1, 3))}; });
                 outputs.push_back(ops::add(b, outputs[1], 1.0));
                 return outputs;
               },
           .expected = {
               compute(DType::kF32, {4, 3}, [&](const At& i) { return at(x, i) * (flag != 0 ? 2 : 1); }),
               compute(DType::kF32, {flag != 0 ? 2 : 3, 3},
                       [&](const At& i) { return flag != 0 ? at(x, i) : -at(x, {i[0] + 1, i[1]}); }),
               compute(DType::kF32, {flag != 0 ? 2 : 3, 3},
                       [&](const At& i) { return (flag != 0 ? at(x, i) : -at(x, {i[0] + 1, i[1]})) + 1; })}});
  }
}

TEST_CASE("what reads a condition before it becomes a symbol reads memory") {
  for (double flag : {0.0, 1.0}) {
    const HostTensor x = sample(DType::kF32, {3});
    check({.name = "select, then if",
           .inputs = {tensor(DType::kBool, {}, {flag}), x},
           .build =
               [](Builder& b, const Ids& in) {
                 const ValueId chosen = ops::where(b, in[0], in[1], ops::neg(b, in[1]));
                 Ids outputs = ops::if_else(
                     b, in[0], [&] { return Ids{ops::mul(b, in[1], 2.0)}; }, [&] { return Ids{in[1]}; });
                 return Ids{chosen, outputs[0], ops::where(b, in[0], chosen, in[1])};
               },
           .expected = {
               compute(DType::kF32, {3}, [&](const At& i) { return at(x, i) * (flag != 0 ? 1 : -1); }),
               compute(DType::kF32, {3}, [&](const At& i) { return at(x, i) * (flag != 0 ? 2 : 1); }), x}});
  }
}

TEST_CASE("a condition on sizes is an expression; a known one leaves no branch") {
  for (int64_t rows : {1, 3}) {
    const HostTensor x = sample(DType::kF32, {rows, 2});
    check({.name = "if on a size",
           .inputs = {x},
           .build =
               [](Builder& b, const Ids& in) {
                 const ValueId many = b.elements({sym::gt(b.shape(in[0])[0], 1)}, {}, DType::kBool);
                 return ops::if_else(
                     b, many, [&] { return Ids{ops::slice(b, in[0], 0, 1, 1)}; },
                     [&] { return Ids{ops::neg(b, in[0])}; });
               },
           .expected = {compute(DType::kF32, {1, 2},
                                [&](const At& i) { return rows > 1 ? at(x, {1, i[1]}) : -at(x, i); })},
           .symbolic = true});
  }
}

TEST_CASE("loops carry, swap, stop and stack") {
  // Fibonacci by swapping two carried values.
  check({.name = "swap",
         .inputs = {tensor(DType::kI64, {2}, {0, 10}), tensor(DType::kI64, {2}, {1, 11})},
         .build =
             [](Builder& b, const Ids& in) {
               auto result = ops::loop(b, 5, std::nullopt, {in[0], in[1]}, [&](const ops::LoopState& s) {
                 return ops::LoopStep{
                     std::nullopt, {s.carried[1], ops::add(b, s.carried[0], s.carried[1])}, {s.carried[0]}};
               });
               return Ids{result.carried[0], result.carried[1], result.stacked[0]};
             },
         .expected = {tensor(DType::kI64, {2}, {5, 85}), tensor(DType::kI64, {2}, {8, 138}),
                      tensor(DType::kI64, {5, 2}, {0, 10, 1, 11, 1, 21, 2, 32, 3, 53})},
         .symbolic = false});
  for (int64_t trips : {0, 3, 10}) {
    // Adds the counter until the sum reaches 6; one row per executed iteration.
    std::vector<double> sums;
    double sum = 0;
    for (int64_t i = 0; i < trips && sum < 6; ++i) sums.push_back(sum += double(i));
    check({.name = "stop",
           .inputs = {tensor(DType::kI64, {1}, {0}), tensor(DType::kI64, {}, {double(trips)})},
           .build =
               [](Builder& b, const Ids& in) {
                 const sym::Expr trips = b.elements_of(in[1], "trips", 0, 1000)[0];
                 auto result = ops::loop(
                     b, trips, b.elements({1}, {}, DType::kBool), {in[0]}, [&](const ops::LoopState& s) {
                       const ValueId next = ops::add(b, s.carried[0], s.counter_value);
                       return ops::LoopStep{
                           ops::reshape(b, ops::lt(b, next, b.scalar(DType::kI64, 6)), {}), {next}, {next}};
                     });
                 return Ids{result.carried[0], ops::mul(b, result.stacked[0], 2.0)};
               },
           .expected = {tensor(DType::kI64, {1}, {sum}),
                        compute(DType::kI64, {int64_t(sums.size()), 1},
                                [&](const At& i) { return 2 * sums[size_t(i[0])]; })}});
  }
}

TEST_CASE("a loop that is known to run no iteration gives what it starts with, and no rows") {
  const HostTensor start = sample(DType::kF32, {2}), rows = tensor(DType::kF32, {0, 2}, {}),
                   ids = tensor(DType::kI64, {0}, {});
  struct How {
    const char* name;
    std::optional<int64_t> trips;  // none: the size of dim 0
    bool never;                    // the condition is false initially
  };
  for (const How& how : {How{"a size of 0", std::nullopt, false}, How{"0", 0, false},
                         How{"below 0", -3, false}, How{"a condition", 5, true}})
    check({.name = how.name,
           .inputs = {start, rows, ids},
           .build =
               [&](Builder& b, const Ids& in) {
                 const sym::Expr trips = how.trips ? sym::Expr(*how.trips) : b.shape(in[1])[0];
                 std::optional<ValueId> condition;
                 if (how.never) condition = b.elements({0}, {}, DType::kBool);
                 auto result = ops::loop(b, trips, condition, {in[0]}, [&](const ops::LoopState& s) {
                   // These elements are out of bounds of both inputs.
                   const ValueId row = ops::squeeze(b, ops::slice(b, in[1], 0, s.counter, 1), {0}),
                                 id = ops::reshape(b, ops::slice(b, in[2], 0, how.trips ? 0 : s.counter, 1),
                                                   {});
                   const ValueId next = ops::add(b, s.carried[0], row);
                   return ops::LoopStep{std::nullopt, {next}, {next, ops::add(b, id, id)}};
                 });
                 return Ids{result.carried[0], result.stacked[0], result.stacked[1]};
               },
           .expected = {start, rows, ids},
           .symbolic = !how.trips});
}

TEST_CASE("rows may have a size that is too long for an expression") {
  const HostTensor x = sample(DType::kF32, {7});
  for (const int64_t trips : {0, 3}) {
    int64_t width = 7;
    for (int i = 0; i < 6; ++i) width += width / (2 + i);
    check({.name = "long rows",
           .inputs = {x},
           .build =
               [&](Builder& b, const Ids& in) {
                 const ValueId one = ops::full(b, {}, DType::kF32, 1);
                 auto result = ops::loop(b, trips, std::nullopt, {one}, [&](const ops::LoopState& s) {
                   sym::Expr size = b.shape(in[0])[0];
                   for (int i = 0; i < 6; ++i) size += sym::floordiv(size, 2 + i);
                   return ops::LoopStep{std::nullopt,
                                        {ops::add(b, s.carried[0], 1.0)},
                                        {ops::broadcast_to(b, s.carried[0], {size})}};
                 });
                 return Ids{result.carried[0], ops::add(b, result.stacked[0], 1.0)};
               },
           .expected = {tensor(DType::kF32, {}, {1.0 + static_cast<double>(trips)}),
                        compute(DType::kF32, {trips, width},
                                [](const At& i) { return static_cast<double>(i[0]) + 2; })}});
  }
}

TEST_CASE("carried sizes that grow or shrink by the same in every iteration") {
  const HostTensor first = sample(DType::kF32, {3, 2, 2}), more = sample(DType::kF32, {3, 1, 2}, 2);
  for (int64_t trips : {0, 1, 4})
    for (bool stops : {false, true}) {
      const int64_t ran = stops ? std::min<int64_t>(trips, 2) : trips;
      const auto element = [&](const At& i) { return i[1] < 2 ? at(first, i) : at(more, {i[0], 0, i[2]}); };
      check({.name = stops ? "grows until it stops" : "grows",
             .inputs = {first, more, tensor(DType::kI64, {}, {double(trips)})},
             .build =
                 [&](Builder& b, const Ids& in) {
                   const sym::Expr count = b.elements_of(in[2], "trips", 0, 100)[0];
                   auto result = ops::loop(b, count, std::nullopt, {in[0]}, [&](const ops::LoopState& s) {
                     std::optional<ValueId> goes_on;
                     if (stops) goes_on = ops::lt(b, s.counter_value, b.scalar(DType::kI64, 1));
                     return ops::LoopStep{goes_on,
                                          {ops::concat(b, {s.carried[0], in[1]}, 1)},
                                          {ops::slice(b, ops::reduce_sum(b, s.carried[0], {1}), 0, 0, 1)}};
                   });
                   return Ids{result.carried[0], result.stacked[0]};
                 },
             .expected = {compute(DType::kF32, {3, 2 + ran, 2}, element),
                          compute(DType::kF32, {ran, 1, 2},
                                  [&](const At& i) {
                                    double sum = 0;
                                    for (int64_t k = 0; k < 2 + i[0]; ++k) sum += element({0, k, i[2]});
                                    return sum;
                                  })},
             .tolerance = 1e-5,
             .fixed = {0, 1}});
    }
  // By a size that only the run gives, and that may be 0.
  for (int64_t rows : {0, 2}) {
    const HostTensor start = sample(DType::kF32, {3, 2}), added = sample(DType::kF32, {rows, 2}, 2);
    check({.name = "grows by an open size",
           .inputs = {start, added, tensor(DType::kI64, {}, {3})},
           .build =
               [](Builder& b, const Ids& in) {
                 const sym::Expr count = b.elements_of(in[2], "trips", 0, 100)[0];
                 auto result = ops::loop(b, count, std::nullopt, {in[0]}, [&](const ops::LoopState& s) {
                   return ops::LoopStep{std::nullopt, {ops::concat(b, {s.carried[0], in[1]}, 0)}, {}};
                 });
                 return Ids{result.carried[0]};
               },
           .expected = {compute(DType::kF32, {3 + 3 * rows, 2}, [&](const At& i) {
             return i[0] < 3 ? at(start, i) : at(added, {(i[0] - 3) % rows, i[1]});
           })}});
  }
  check({.name = "shrinks",
         .inputs = {sample(DType::kF32, {7, 2})},
         .build =
             [](Builder& b, const Ids& in) {
               auto result = ops::loop(b, 3, std::nullopt, {in[0]}, [&](const ops::LoopState& s) {
                 const sym::Expr size = ops::dim(b, s.carried[0], 0);
                 return ops::LoopStep{std::nullopt, {ops::slice(b, s.carried[0], 0, 2, size - 2)}, {}};
               });
               return Ids{result.carried[0]};
             },
         .expected = {compute(DType::kF32, {1, 2},
                              [&](const At& i) { return at(sample(DType::kF32, {7, 2}), {6, i[1]}); })},
         .fixed = {0}});
}

TEST_CASE("a loop without a bound collects rows and grows until its condition fails") {
  const HostTensor x = sample(DType::kF32, {2, 3}), column = sample(DType::kF32, {2, 1, 3}, 2);
  for (const int64_t ran : {0, 1, 16, 17, 70})
    for (const int64_t trips : {int64_t{1} << 31, std::numeric_limits<int64_t>::max()})
      check({.name = "unbounded",
             .inputs = {x, column, tensor(DType::kI64, {}, {double(ran)})},
             .build =
                 [&](Builder& b, const Ids& in) {
                   const ValueId start = ops::lt(b, b.scalar(DType::kI64, 0), in[2]);
                   auto result = ops::loop(b, trips, start, {in[1]}, [&](const ops::LoopState& s) {
                     const ValueId next = ops::add(b, s.counter_value, b.scalar(DType::kI64, 1));
                     return ops::LoopStep{ops::lt(b, next, in[2]),
                                          {ops::concat(b, {s.carried[0], in[1]}, 1)},
                                          {ops::mul(b, in[0], ops::cast(b, next, DType::kF32)), next,
                                           ops::slice(b, ops::reduce_sum(b, s.carried[0], {1}), 0, 0, 1)}};
                   });
                   return Ids{result.carried[0], result.stacked[0],
                              ops::add(b, result.stacked[1], result.stacked[1]), result.stacked[2]};
                 },
             .expected = {compute(DType::kF32, {2, 1 + ran, 3},
                                  [&](const At& i) { return at(column, {i[0], 0, i[2]}); }),
                          compute(DType::kF32, {ran, 2, 3},
                                  [&](const At& i) { return at(x, {i[1], i[2]}) * double(i[0] + 1); }),
                          compute(DType::kI64, {ran}, [](const At& i) { return 2 * double(i[0] + 1); }),
                          compute(DType::kF32, {ran, 1, 3},
                                  [&](const At& i) { return at(column, {0, 0, i[2]}) * double(i[0] + 1); })},
             .tolerance = 1e-4,
             .fixed = {1}});
}

TEST_CASE("loops without a bound may be nested") {
  // Outer iteration i sums the i + 20 rows of an inner loop.
  const HostTensor x = sample(DType::kF32, {5});
  const int64_t ran = 19;
  check({.name = "nested",
         .inputs = {x, tensor(DType::kI64, {}, {double(ran)})},
         .build =
             [&](Builder& b, const Ids& in) {
               const ValueId yes = b.elements({1}, {}, DType::kBool);
               const auto trips = std::numeric_limits<int64_t>::max();
               auto result = ops::loop(b, trips, yes, {in[0]}, [&](const ops::LoopState& outer) {
                 const ValueId last = ops::add(b, outer.counter_value, b.scalar(DType::kI64, 19));
                 auto rows = ops::loop(b, trips, yes, {in[0]}, [&](const ops::LoopState& s) {
                   return ops::LoopStep{ops::lt(b, s.counter_value, last), {s.carried[0]}, {s.carried[0]}};
                 });
                 return ops::LoopStep{
                     ops::lt(b, outer.counter_value, ops::sub(b, in[1], b.scalar(DType::kI64, 1))),
                     {outer.carried[0]},
                     {ops::reduce_sum(b, rows.stacked[0], {0})}};
               });
               return Ids{result.stacked[0]};
             },
         .expected = {compute(DType::kF32, {ran, 5},
                              [&](const At& i) { return at(x, {i[1]}) * double(i[0] + 20); })},
         .tolerance = 1e-4});
}

TEST_CASE("a loop that nothing ends is refused, and one that grows along two dims without a bound") {
  const Case endless{
      .name = "endless", .inputs = {sample(DType::kF32, {3})}, .build = [](Builder& b, const Ids& in) {
        const auto trips = std::numeric_limits<int64_t>::max();
        return Ids{ops::loop(b, trips, std::nullopt, {in[0]}, [&](const ops::LoopState& s) {
                     return ops::LoopStep{std::nullopt, {s.carried[0]}, {s.carried[0]}};
                   }).stacked[0]};
      }};
  CHECK(failure(endless, false).find("nothing ends it") != std::string::npos);
  const Case square{
      .name = "square", .inputs = {sample(DType::kF32, {1, 1})}, .build = [](Builder& b, const Ids& in) {
        const auto trips = std::numeric_limits<int64_t>::max();
        const ValueId yes = b.elements({1}, {}, DType::kBool);
        return Ids{ops::loop(b, trips, yes, {in[0]}, [&](const ops::LoopState& s) {
                     return ops::LoopStep{
                         ops::lt(b, s.counter_value, b.scalar(DType::kI64, 3)),
                         {ops::pad(b, s.carried[0], {0, 0}, {1, 1}, b.scalar(DType::kF32, 0))},
                         {}};
                   }).carried[0]};
      }};
  CHECK(failure(square, false).find("grows along several dims") != std::string::npos);
}

TEST_CASE("an update of state shows after the run") {
  graph::Graph g;
  Builder b(g, ops::shape_table());
  const ValueId x = b.input("x", {DType::kF32, {2}});
  const ValueId s = b.state("sum", {DType::kF32, {2}}, std::nullopt);
  const ValueId next = ops::add(b, s, x);
  b.add(OpKind::kUpdateState, {s, next});
  b.output("before", s);
  b.output("after", next);
  graph::eliminate_dead_code(g);
  const loop::Program program = ops::lower(g);
  std::vector<HostTensor> states{loop::make_tensor(DType::kF32, {2})};
  for (int run = 0; run < 3; ++run) {
    const auto out =
        loop::interpret(program, {tensor(DType::kF32, {2}, {1, 2})}, {.poison = true, .states = &states});
    CHECK(at(out[0], {1}) == 2 * run);
    CHECK(at(out[1], {1}) == 2 * run + 2);
  }
}

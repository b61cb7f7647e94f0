#include "compiler/schedule/fusion/distribute_loops.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

// Centres each of 16 channels over n images of `positions`; the sum of the results' squares and a running
// mean follow in the same nest.
Program centred(int64_t positions) {
  const std::string p = std::to_string(positions);
  Program program = parse_program(R"(
program centred
  symbol n = input 0 dim 0 in 1..64
  input x f32 [n, )" + p + R"(, 16]
  input scale f32 [16]
  arena t f32 [n, )" + p + R"(, 16]
  state running f32 [16] ordinal 0
  output y f32 [n, )" + p + R"(, 16] ordinal 0
  output squares f32 [16] ordinal 1
  inputs (x, scale)
  outputs (y, squares)
  states (running)
  steps
    nest 0 centre (%i0<16)
      %0 : f32 = reduce sum (%i1<n, %i2<)" +
                                  p + R"()
        %1 : f32 = load x[%i1, %i2, %i0]
        yield %1
      %2 : f32 = index n
      %3 : f32 = div %0 %2
      %4 : f32 = load scale[%i0]
      %5 : f32 = load running[%i0]
      for (%i3<n, %i4<)" + p + R"()
        %6 : f32 = load x[%i3, %i4, %i0]
        %7 : f32 = sub %6 %3
        %8 : f32 = mul %7 %4
        %9 : f32 = sub %8 %5
        store t[%i3, %i4, %i0] %9
      store running[%i0] %3
      %10 : f32 = reduce sum (%i5<n, %i6<)" +
                                  p + R"()
        %11 : f32 = load t[%i5, %i6, %i0]
        %12 : f32 = mul %11 %11
        yield %12
      store squares[%i0] %10
    nest 1 out (%i0<n, %i1<)" + p +
                                  R"(, %i2<16)
      %0 : f32 = load t[%i0, %i1, %i2]
      store y[%i0, %i1, %i2] %0
)");
  verify(program);
  return program;
}

Program distributed(const Program& before) {
  Program after = before;
  schedule::distribute_loops(after, gpu_target("sm_90a"));
  verify(after);
  return after;
}

}  // namespace

TEST_CASE("a long loop of few points becomes a nest, between what comes before and what reads it") {
  const Program before = centred(3000);
  Program after = distributed(before);
  const std::string text = to_string(after);
  INFO(text);
  CHECK(after.steps.size() == before.steps.size() + 2);
  CHECK(text.find("for (") == std::string::npos);
  // The mean passes through memory; the scale is loaded again. The running mean is replaced by the nest, so
  // what was loaded before passes as well.
  CHECK(after.buffers.size() == before.buffers.size() + 2);
  schedule::plan_memory(after);
  for (const int64_t n : {1, 3}) CHECK(same_results(before, after, {{sym::var("n"), n}}));
}

// The sum of what each of 16 channels lacks to its largest value, kept as a row of `positions`.
Program kept_row(int64_t positions, bool channels_last) {
  const std::string p = std::to_string(positions);
  const auto load = [&](const char* at) {
    return channels_last ? cat("load x[", at, ", %i0]") : cat("load x[%i0, ", at, "]");
  };
  Program program = parse_program(cat("program rows\n  input x f32 ",
                                      channels_last ? cat("[", p, ", 16]") : cat("[16, ", p, "]"),
                                      "\n  local row f32 [", p, R"(]
  output sums f32 [16] ordinal 0
  inputs (x)
  outputs (sums)
  steps
    nest 0 keep (%i0<16)
      %0 : f32 = reduce max (%i1<)",
                                      p, ")\n        %1 : f32 = ", load("%i1"), R"(
        yield %1
      for (%i2<)",
                                      p, ")\n        %2 : f32 = ", load("%i2"), R"(
        %3 : f32 = sub %0 %2
        store row[%i2] %3
      %4 : f32 = reduce sum (%i3<)",
                                      p, R"()
        %5 : f32 = load row[%i3]
        yield %5
      store sums[%i0] %4
)"));
  verify(program);
  return program;
}

TEST_CASE("a row too long for shared memory becomes an arena buffer with the layout of its source") {
  for (const bool channels_last : {true, false}) {
    const Program before = kept_row(70000, channels_last);
    Program after = distributed(before);
    INFO(to_string(after));
    REQUIRE(after.steps.size() == 3);
    const auto& reduce = std::get<Reduce>(after[std::get<Launch>(after.steps[2].node).nest].body[0].node);
    const auto& load = std::get<Load>(reduce.body[0].node);
    CHECK(after[load.access.buffer].storage == Storage::kArena);
    CHECK(after[load.access.buffer].strides ==
          (channels_last ? std::vector<sym::Expr>{16, 1} : std::vector<sym::Expr>{1, 70000}));
    schedule::plan_memory(after);
    CHECK(same_results(before, after, {}));
  }
}

TEST_CASE("a row that fits in shared memory stays local") {
  const Program before = kept_row(50000, false);
  CHECK(to_string(distributed(before)) == to_string(before));
}

TEST_CASE("rows are not kept where memory runs along the points") {
  CHECK(distributed(kept_row(50000, true)).steps.size() == 3);
}

TEST_CASE("a short loop stays with its points") {
  const Program before = centred(20);
  CHECK(to_string(distributed(before)) == to_string(before));
}

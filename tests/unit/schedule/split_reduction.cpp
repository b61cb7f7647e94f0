#include "compiler/schedule/algebra/split_reduction.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

// Mean and variance of groups of `group` adjacent channels over all pixels: x is [n, m, 5 * group].
Program group_statistics(int64_t group) {
  Pieces p("statistics");
  const View x = p.input("x", {p.n, p.m, 5 * group});
  NestBuilder nest(p.program, "norm");
  const View out = p.temporary("t", {p.n, 5});
  const auto at = nest.dims(out.shape);
  const std::vector<Expr> window = {group, p.m};
  const Value count = nest.index_value(p.m * group, DType::kF32);
  auto element = [&](const std::vector<Expr>& k) {
    return nest.load(x, {at[0], k[1], at[1] * group + k[0]});
  };
  const Value mean = nest.reduce(Combine::kSum, window, element) / count;
  const Value squares = nest.reduce(Combine::kSum, window, [&](const std::vector<Expr>& k) {
    const Value d = element(k) - mean;
    return d * d;
  });
  nest.store(out, at, squares / count + mean);
  nest.finish();
  p.output("y", out);
  return p.program;
}

std::string directive(const std::string& text) {
  return to_string(Schedule{.kernel = "",
                            .directives = {schedule::to_directive(
                                schedule::to_reduction_split(parse_schedule(text).directives.at(0)))}});
}

// The program with its first nest split.
Program split(const Program& before, const std::string& text, std::string* reason) {
  const auto wish = schedule::to_reduction_split(parse_schedule(text).directives.at(0));
  return testing::with_first_nest_replaced(before, [&](Program& program, const Nest& nest) {
    return schedule::split_reduction(program, nest, wish, reason);
  });
}

void check_same(const Program& before, Program after) {
  schedule::plan_memory(after);
  const Expr n = sym::var("n"), m = sym::var("m");
  for (int64_t size : {0, 1, 3, 40}) CHECK(same_results(before, after, {{n, 2}, {m, size}}));
  CHECK(same_results(before, after, {{n, 0}, {m, 4}}));
}

std::string refusal(const Program& program, const std::string& text) {
  std::string reason;
  CHECK(split(program, text, &reason).steps.size() == program.steps.size());
  return reason;
}

std::string malformed(const std::string& text) {
  try {
    directive(text);
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kMalformed);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("the directive's text is what it parses from") {
  for (const char* text :
       {"split_reduction %r", "split_reduction %r %k join %g", "split_reduction %r by 4096"})
    CHECK(directive(text) == text);
  CHECK(malformed("split_reduction") != "accepted");
  CHECK(malformed("split_reduction by 3") != "accepted");
  CHECK(malformed("split_reduction %r by") != "accepted");
  CHECK(malformed("split_reduction %r by 0") != "accepted");
  CHECK(malformed("split_reduction %r join") != "accepted");
  CHECK(malformed("split_reduction %r join %g %h") != "accepted");
  CHECK(malformed("vectorize %r 16") != "accepted");
}

TEST_CASE("partial results of a mean, then of a variance") {
  const Program before = group_statistics(4);
  std::string reason;
  const Program after = split(before, "split_reduction %r2 join %i1", &reason);
  CHECK(after.steps.size() == before.steps.size() + 1);
  CHECK(to_string(after, after[std::get<Launch>(after.steps[0].node).nest]) == R"(nest norm (%i0<n, %i1.j<20)
  %2 : f32 = reduce sum (%r3<m)
    %1 : f32 = load x[%i0, %r3, %i1.j]
    yield %1
  store t3[%i0, %i1.j] %2
)");
  check_same(before, after);
  // The second reduction needs the result of the first one, through memory.
  const Program again = split(before, "split_reduction %r4 join %i1", &reason);
  CHECK(again.steps.size() == before.steps.size() + 2);
  check_same(before, again);
  check_same(before, split(before, "split_reduction %r4 %r5", &reason));
}

TEST_CASE("a variance is split together with its mean") {
  Program before = group_statistics(4);
  before.facts.set_range(sym::var("m"), 1, 1000);
  std::string reason;
  for (const char* directive :
       {"split_reduction %r3", "split_reduction %r2", "split_reduction %r2 join %i1"}) {
    CAPTURE(directive);
    const Program after = split(before, directive, &reason);
    CHECK(after.steps.size() == before.steps.size() + 1);
    // Only the partial results read x; the combine step does not.
    const Nest& combined = after[std::get<Launch>(after.steps[1].node).nest];
    const BufferId x = after.inputs[0];
    const std::vector<BufferId> read = buffers_of(combined);
    CHECK(std::find(read.begin(), read.end(), x) == read.end());
    Program planned = after;
    schedule::plan_memory(planned);
    for (int64_t size : {1, 3, 40})
      CHECK(same_results(before, planned, {{sym::var("n"), 2}, {sym::var("m"), size}}));
  }
  const Program after = split(before, "split_reduction %r3", &reason);
  CHECK(to_string(after, after[std::get<Launch>(after.steps[0].node).nest]) ==
        R"(nest norm (%i0<n, %r3<m, %i1<5)
  %10 : f32 = load x[%i0, %r3, 4*%i1 + 1]
  %12 : f32 = load x[%i0, %r3, 4*%i1 + 2]
  %14 : f32 = load x[%i0, %r3, 4*%i1 + 3]
  %16 : f32 = min %10 %12
  %17 : f32 = max %10 %12
  %18 : f32 = min %17 %14
  %19 : f32 = max %16 %18
  %2 : f32, %22 : f32 = reduce sum (%r2<4)
    %1 : f32 = load x[%i0, %r3, 4*%i1 + %r2]
    %20 : f32 = sub %1 %19
    %21 : f32 = mul %20 %20
    yield %20 %21
  %23 : f32 = constant 4
  %24 : f32 = mul %23 %19
  %25 : f32 = add %24 %2
  %26 : f32 = mul %2 %2
  %27 : f32 = div %26 %23
  %28 : f32 = sub %22 %27
  %29 : f32 = constant 0
  %30 : f32 = max %28 %29
  store t3[%i0, %r3, %i1] %25
  store t4[%i0, %r3, %i1] %30
)");
  CHECK(to_string(after, after[std::get<Launch>(after.steps[1].node).nest]) == R"(nest norm (%i0<n, %i1<5)
  %0 : f32 = index 4*m
  %2 : f32 = reduce sum (%r3<m)
    %10 : f32 = load t3[%i0, %r3, %i1]
    yield %10
  %3 : f32 = div %2 %0
  %13 : f32 = constant 4
  %7 : f32 = reduce sum (%r4<m)
    %11 : f32 = load t3[%i0, %r4, %i1]
    %12 : f32 = load t4[%i0, %r4, %i1]
    %14 : f32 = div %11 %13
    %15 : f32 = sub %14 %3
    %16 : f32 = mul %15 %15
    %18 : f32 = mul %16 %13
    %19 : f32 = add %12 %18
    yield %19
  %8 : f32 = div %7 %0
  %9 : f32 = add %8 %3
  store t[%i0, %i1] %9
)");
}

TEST_CASE("variances keep their digits far from zero, and other sums of squares stay as they are") {
  // x [n, m] around `offset`; sum of squares of x minus a center.
  enum class Center { kMean, kSum, kHalf };
  auto variance = [](Center center, double offset) {
    Pieces p("variance");
    p.program.facts.set_range(p.m, 1, 100000);
    const View x = p.input("x", {p.n, p.m});
    NestBuilder nest(p.program, "variance");
    const View out = p.temporary("t", {p.n});
    const auto at = nest.dims(out.shape);
    auto element = [&](const std::vector<Expr>& k) {
      return nest.load(x, {at[0], k[0]}) + nest.constant(DType::kF32, offset);
    };
    const Value count = nest.index_value(center == Center::kHalf ? 2 * p.m : p.m, DType::kF32);
    const Value sum = nest.reduce(Combine::kSum, {p.m}, element);
    const Value from = center == Center::kSum ? sum : sum / count;
    const Value squares = nest.reduce(Combine::kSum, {p.m}, [&](const std::vector<Expr>& k) {
      const Value d = from - element(k);
      return d * d;
    });
    nest.store(out, at, squares / nest.index_value(p.m, DType::kF32));
    nest.finish();
    p.output("y", out);
    return p.program;
  };
  std::string reason;
  for (double offset : {0.0, 1000.0}) {
    const Program before = variance(Center::kMean, offset);
    Program after = split(before, "split_reduction %r1 by 8", &reason);
    CHECK(after.steps.size() == before.steps.size() + 1);
    schedule::plan_memory(after);
    for (int64_t size : {1, 8, 9, 1001})
      CHECK(same_results(before, after, {{sym::var("n"), 3}, {sym::var("m"), size}}));
  }
  for (Center center : {Center::kSum, Center::kHalf}) {
    const Program before = variance(center, 0);
    const Program after = split(before, "split_reduction %r1 by 8", &reason);
    const std::vector<BufferId> read = buffers_of(after[std::get<Launch>(after.steps[1].node).nest]);
    CHECK(std::find(read.begin(), read.end(), after.inputs[0]) != read.end());
  }
}

// x [n, c, 7]: a mean over n and 7 (scaled by one over their number, or by `scale`), and the deviation from
// it.
Program channel_statistics(int64_t n, double scale) {
  Pieces p("statistics");
  const View x = p.input("x", {n, 5, 7});
  NestBuilder nest(p.program, "statistics");
  const View out = p.temporary("t", {5});
  const auto at = nest.dims(out.shape);
  auto element = [&](const std::vector<Expr>& k) { return nest.load(x, {k[0], at[0], k[1]}); };
  const Value mean = nest.reduce(Combine::kSum, {n, 7}, element) * nest.constant(DType::kF32, scale);
  nest.store(out, at, nest.reduce(Combine::kSum, {n, 7}, [&](const std::vector<Expr>& k) {
    const Value away = element(k) - mean;
    return away * away;
  }));
  nest.finish();
  p.output("y", out);
  return p.program;
}

TEST_CASE("a mean of a known number of elements may be a sum times one over it") {
  std::string reason;
  for (const double points : {7.0 * 12, 7.0 * 13})
    for (const char* directive :
         {"split_reduction %r1", "split_reduction %r2", "split_reduction %r2 join %i0"}) {
      CAPTURE(points);
      CAPTURE(directive);
      const Program before = channel_statistics(12, 1 / points);
      Program after = split(before, directive, &reason);
      REQUIRE(after.steps.size() == before.steps.size() + 1);
      const std::vector<BufferId> read = buffers_of(after[std::get<Launch>(after.steps[1].node).nest]);
      CHECK((std::find(read.begin(), read.end(), after.inputs[0]) == read.end()) == (points == 7 * 12));
      schedule::plan_memory(after);
      CHECK(same_results(before, after, {}));
    }
}

TEST_CASE("values that are used twice at every step are looked at once") {
  // Visiting each use separately would take 2^64 visits.
  Pieces p("chain");
  const View x = p.input("x", {p.n, 64, 8}), scale = p.input("scale", {p.n});
  NestBuilder nest(p.program, "chain");
  const View out = p.temporary("t", {p.n});
  const auto at = nest.dims(out.shape);
  const auto squared = [](Value v) {
    for (int i = 0; i < 64; ++i) v = v * v;
    return v;
  };
  const Value factor = squared(nest.load(scale, at));
  auto element = [&](const std::vector<Expr>& k) {
    return squared(nest.load(x, {at[0], k[0], k[1]})) + factor;
  };
  const Value mean = nest.reduce(Combine::kSum, {64, 8}, element) * nest.constant(DType::kF32, 1.0 / 512);
  nest.store(out, at, nest.reduce(Combine::kSum, {64, 8}, [&](const std::vector<Expr>& k) {
    const Value away = element(k) - mean;
    return away * away;
  }));
  nest.finish();
  p.output("y", out);
  std::string reason;
  const Program after = split(p.program, "split_reduction %r1", &reason);
  const std::vector<BufferId> read = buffers_of(after[std::get<Launch>(after.steps[1].node).nest]);
  CHECK(std::find(read.begin(), read.end(), after.inputs[0]) == read.end());
}

TEST_CASE("strips of one dim, also of pairs") {
  for (Combine combine : {Combine::kSum, Combine::kMax, Combine::kArgMax}) {
    Pieces p("strips");
    const View x = p.input("x", {p.n, p.m});
    NestBuilder nest(p.program, "whole");
    const View out = p.temporary("t", {p.n}), where = p.temporary("u", {p.n}, DType::kI64);
    const auto at = nest.dims(out.shape);
    const auto found = nest.reduce_many(combine, {p.m}, [&](const std::vector<Expr>& k) {
      std::vector<Value> yields = {nest.load(x, {at[0], k[0]})};
      if (arity(combine) == 2) yields.push_back(nest.index_value(k[0]));
      return yields;
    });
    nest.store(out, at, found[0]);
    nest.store(where, at, arity(combine) == 2 ? found[1] : nest.index_value(0));
    nest.finish();
    p.output("y", out);
    p.output("z", where);
    std::string reason;
    const Program after = split(p.program, "split_reduction %r1 by 8", &reason);
    CHECK(after.steps.size() == p.program.steps.size() + 1);
    Program planned = after;
    schedule::plan_memory(planned);
    for (int64_t size : {1, 7, 8, 9, 33})
      CHECK(same_results(p.program, planned, {{sym::var("n"), 3}, {sym::var("m"), size}}));
  }
}

TEST_CASE("what cannot be split says why") {
  const Program before = group_statistics(4);
  CHECK(refusal(before, "split_reduction %r9") == "no reduction of the nest runs over %r9");
  CHECK(refusal(before, "split_reduction %r2 %r5") == "the reduction does not run over %r5");
  CHECK(refusal(before, "split_reduction %r2 join %i7") == "no parallel dim %i7");
  CHECK(refusal(before, "split_reduction %r2 by 4") == "tiles need a reduction over one dim");
}

// Sums of two tensors in one nest, after each of which a state follows its sum. The second may depend on the
// state that the first has written.
Program two_sums(bool dependent) {
  std::string text = R"(
program sums
  input x f32 [64, 200, 16]
  input z f32 [64, 200, 16]
  state a f32 [16] ordinal 0
  state b f32 [16] ordinal 1
  output y f32 [16] ordinal 0
  inputs (x, z)
  outputs (y)
  states (a, b)
  steps
    nest 0 sums (%i0<16)
      %0 : f32 = reduce sum (%i1<64, %i2<200)
        %1 : f32 = load x[%i1, %i2, %i0]
        yield %1
      %2 : f32 = load a[%i0]
      %3 : f32 = add %2 %0
      store a[%i0] %3
      %4 : f32 = load OFFSET[%i0]
      %5 : f32 = reduce sum (%i3<64, %i4<200)
        %6 : f32 = load z[%i3, %i4, %i0]
        %7 : f32 = sub %6 %4
        yield %7
      %8 : f32 = load b[%i0]
      %9 : f32 = add %8 %5
      store b[%i0] %9
      store y[%i0] %9
)";
  text.replace(text.find("OFFSET"), 6, dependent ? "a" : "b");
  Program program = parse_program(text);
  verify(program);
  return program;
}

TEST_CASE("each of two sums with updates between them is split, unless it depends on the update") {
  for (const bool dependent : {false, true}) {
    const Program before = two_sums(dependent);
    Program after = before;
    schedule::split_reductions(after, schedule::Sharing::kBlocks);
    verify(after);
    INFO(to_string(after));
    CHECK(after.steps.size() == (dependent ? 2 : 3));
    schedule::plan_memory(after);
    CHECK(same_results(before, after, {}));
  }
}

TEST_CASE("long reductions of few points are split, short ones and those of many points are not") {
  using schedule::Sharing;
  auto steps_of = [](int64_t rows, int64_t columns, Sharing sharing = Sharing::kThreads) {
    Pieces p("policy");
    const View x = p.input("x", {rows, columns});
    p.output("y", p.reduce_last(x, Combine::kSum));
    Program after = p.program;
    const size_t before = after.steps.size();
    schedule::split_reductions(after, sharing);
    verify(after);
    return after.steps.size() - before;
  };
  CHECK(steps_of(1, 100000) == 1);
  CHECK(steps_of(3, 12345) == 1);
  CHECK(steps_of(1, 4000) == 0);
  CHECK(steps_of(512, 100000) == 0);
  // A GPU's blocks already parallelise the only loop of the nest.
  CHECK(steps_of(1, 100000, Sharing::kBlocks) == 0);
  // Unknown sizes: counted as one for threads, as a typical size for blocks.
  for (const Sharing sharing : {Sharing::kThreads, Sharing::kBlocks}) {
    Program statistics = group_statistics(64);
    const size_t before = statistics.steps.size();
    schedule::split_reductions(statistics, sharing);
    verify(statistics);
    CHECK((statistics.steps.size() > before) == (sharing == Sharing::kThreads));
  }
}

TEST_CASE("the depth of a product of activations with few results is split, of others it is not") {
  const auto steps_of = [](int64_t images, int64_t positions, int64_t columns, bool weight) {
    Pieces p("gradient");
    const View x = p.input("x", {images, positions, 4});
    const View y =
        weight ? p.weight("y", {images, positions, columns}, 3) : p.input("y", {images, positions, columns});
    const View out = p.temporary("t", {4, columns});
    NestBuilder nest(p.program, "matmul");
    const auto at = nest.dims(out.shape);
    nest.store(out, at, nest.reduce(Combine::kSum, {images, positions}, [&](const std::vector<Expr>& k) {
      return nest.load(x, {k[0], k[1], at[0]}) * nest.load(y, {k[0], k[1], at[1]});
    }));
    nest.finish();
    p.output("dw", out);
    Program after = p.program;
    const size_t before = after.steps.size();
    schedule::split_deep_gemms(after);
    verify(after);
    const size_t made = after.steps.size() - before;
    if (made > 0) {
      schedule::plan_memory(after);
      CHECK(same_results(p.program, after, {}));
    }
    return made;
  };
  CHECK(steps_of(8, 2100, 3, false) == 1);
  CHECK(steps_of(8, 300, 3, false) == 0);       // not deep
  CHECK(steps_of(1024, 20, 3, false) == 0);     // parts of little depth
  CHECK(steps_of(8, 2100, 3, true) == 0);       // a weight
  CHECK(steps_of(8, 2100, 40000, false) == 0);  // many results
}

#include "compiler/schedule/heuristics/contraction.h"

#include <doctest/doctest.h>

#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/build.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/candidates.h"

using namespace stridec;
using loop::NestBuilder;
using loop::Storage;
using sym::Expr;

namespace {

// The schedule of x[m, k] w[k, n], w a weight.
loop::Schedule schedule_of(Expr m, int64_t n, int64_t k, DType a, DType b, const CpuTarget& target) {
  loop::Program program;
  auto buffer = [&](const char* name, std::vector<Expr> shape, DType dtype, Storage storage) {
    return loop::whole(
        program, loop::add_buffer(
                     program, {.name = name, .dtype = dtype, .shape = std::move(shape), .storage = storage}));
  };
  if (!sym::as_const(m)) program.facts.set_range(m, 1, 512);
  const DType sums = is_float(a) ? DType::kF32 : DType::kI32;
  const loop::View x = buffer("x", {m, k}, a, Storage::kArena),
                   w = buffer("w", {k, n}, b, Storage::kParameter),
                   y = buffer("y", {m, n}, sums, Storage::kArena);
  NestBuilder nest(program, "linear");
  const auto i = nest.dims({m, n});
  nest.store(y, i, nest.reduce(loop::Combine::kSum, {k}, [&](const std::vector<Expr>& at) {
    return nest.cast(nest.load(x, {i[0], at[0]}), sums) * nest.cast(nest.load(w, {at[0], i[1]}), sums);
  }));
  const loop::NestId id = nest.finish();
  const auto chosen = schedule::choose_contraction(program, program[id], target);
  REQUIRE(chosen.has_value());
  return *chosen;
}

std::string kernel_of(int64_t m, int64_t n, int64_t k, DType a, DType b, const CpuTarget& target) {
  return schedule_of(m, n, k, a, b, target).kernel;
}

}  // namespace

TEST_CASE("tile registers take large products and leave small ones") {
  const CpuTarget& target = cpu_target("sapphirerapids");
  for (auto [a, b] :
       {std::pair{DType::kBF16, DType::kBF16}, {DType::kU8, DType::kI8}, {DType::kI8, DType::kI8}}) {
    CAPTURE(name(a));
    CHECK(kernel_of(512, 768, 3072, a, b, target).find(".amx.") != std::string::npos);
    CHECK(kernel_of(128, 768, 768, a, b, target).find(".amx.") != std::string::npos);
  }
  CHECK(kernel_of(33, 70, 129, DType::kU8, DType::kI8, target).find(".amx.") == std::string::npos);
  CHECK(kernel_of(1, 768, 768, DType::kU8, DType::kI8, target).find(".amx.") == std::string::npos);
  CHECK(kernel_of(512, 768, 3072, DType::kF32, DType::kF32, target).starts_with("gemm.f32."));
}

TEST_CASE("products of bf16 are taken where they are faster than those of f32") {
  CpuTarget without_tiles = cpu_target("sapphirerapids");
  without_tiles.amx_bf16 = without_tiles.amx_int8 = false;
  CHECK(kernel_of(512, 768, 3072, DType::kBF16, DType::kBF16, without_tiles).starts_with("gemm.f32."));
  CHECK(
      kernel_of(512, 768, 3072, DType::kBF16, DType::kBF16, cpu_target("znver5")).starts_with("gemm.bf16."));
  CHECK(kernel_of(512, 768, 3072, DType::kU8, DType::kI8, without_tiles).starts_with("gemm.u8s8."));
}

TEST_CASE("a panel that is a little larger than its share of the cache is one piece") {
  const auto chunk_of = [](int64_t k) {
    return kernels::to_plan(schedule_of(784, 128, k, DType::kF32, DType::kF32, cpu_target("znver5"))).chunk;
  };
  CHECK(chunk_of(1152) >= 1152);
  CHECK(chunk_of(4096) < 4096);
}

TEST_CASE(
    "run-time rows of b that share sets of L2 or lie pages apart are copied, others are read in place") {
  // The gradient of a weight, dw[i, o] = sum over tokens of x[t, i] dy[t, o].
  const auto plan_of = [](int64_t tokens, int64_t in, int64_t out) {
    loop::Program program;
    const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
      return loop::whole(
          program,
          loop::add_buffer(program, {.name = name, .shape = {rows, columns}, .storage = Storage::kArena}));
    };
    const loop::View x = matrix("x", tokens, in), dy = matrix("dy", tokens, out), dw = matrix("dw", in, out);
    NestBuilder nest(program, "gradient");
    const auto i = nest.dims({in, out});
    nest.store(dw, i, nest.reduce(loop::Combine::kSum, {tokens}, [&](const std::vector<Expr>& t) {
      return nest.load(x, {t[0], i[0]}) * nest.load(dy, {t[0], i[1]});
    }));
    const loop::NestId id = nest.finish();
    const auto chosen = schedule::choose_contraction(program, program[id], cpu_target("znver3"));
    REQUIRE(chosen.has_value());
    return kernels::to_plan(*chosen);
  };
  CHECK(plan_of(512, 768, 3072).b == kernels::GemmPlan::B::kStage);
  CHECK(plan_of(512, 768, 1024).b == kernels::GemmPlan::B::kStage);
  CHECK(plan_of(128, 768, 264).b == kernels::GemmPlan::B::kDirect);
  // Columns follow the result's rows, also where the other factor's rows are many.
  const kernels::GemmPlan head = plan_of(512, 8192, 256);
  REQUIRE(head.columns.size() == 1);
  CHECK(head.columns[0].name() == "%i1");
}

TEST_CASE("tasks are not of a few rows where their number is a symbol, which may be small") {
  for (const char* cpu : {"znver3", "x86-64-v3"}) {
    for (const int64_t size : {1024, 2048}) {
      CAPTURE(cpu);
      CAPTURE(size);
      const kernels::GemmPlan plan =
          kernels::to_plan(schedule_of(sym::var("m"), size, size, DType::kF32, DType::kF32, cpu_target(cpu)));
      CHECK(plan.tiles * plan.kernel->rows >= 12);
    }
  }
}

TEST_CASE("results that are pages apart are not stored one by one") {
  // A convolution with three spatial dims. In images of 16 x 56 x 56 channels are exactly 49 pages apart, in
  // images of 15 x 56 x 56 they are not.
  const auto stages_images = [](int64_t depth) {
    loop::Program program;
    auto buffer = [&](const char* name, std::vector<Expr> shape, Storage storage) {
      const loop::BufferId id = loop::add_buffer(
          program, {.name = name, .dtype = DType::kF32, .shape = std::move(shape), .storage = storage});
      return loop::whole(program, id);
    };
    const loop::View x = buffer("x", {16, depth + 2, 58, 58}, Storage::kArena),
                     w = buffer("w", {32, 16, 3, 3, 3}, Storage::kParameter),
                     y = buffer("y", {32, depth, 56, 56}, Storage::kArena);
    NestBuilder nest(program, "conv");
    const auto i = nest.dims({32, depth, 56, 56});
    nest.store(y, i, nest.reduce(loop::Combine::kSum, {16, 3, 3, 3}, [&](const std::vector<Expr>& k) {
      return nest.load(x, {k[0], i[1] + k[1], i[2] + k[2], i[3] + k[3]}) *
             nest.load(w, {i[0], k[0], k[1], k[2], k[3]});
    }));
    const loop::NestId id = nest.finish();
    const auto chosen = schedule::choose_contraction(program, program[id], cpu_target("znver5"));
    REQUIRE(chosen.has_value());
    return loop::to_string(*chosen).find("b stage") != std::string::npos;
  };
  CHECK(stages_images(16));
  CHECK(!stages_images(15));
}

TEST_CASE("a convolution to three channels runs on a micro-kernel, also where channels are not contiguous") {
  // Channels-last input; output in image layout.
  loop::Program program;
  const auto buffer = [&](const char* name, std::vector<Expr> shape, Storage storage) {
    return loop::whole(
        program, loop::add_buffer(program, {.name = name, .shape = std::move(shape), .storage = storage}));
  };
  const loop::View x = buffer("x", {1, 66, 66, 32}, Storage::kArena),
                   w = buffer("w", {3, 32, 3, 3}, Storage::kParameter),
                   y = buffer("y", {1, 3, 64, 64}, Storage::kOutput);
  NestBuilder nest(program, "conv");
  const auto i = nest.dims({1, 3, 64, 64});
  nest.store(y, i, nest.reduce(loop::Combine::kSum, {32, 3, 3}, [&](const std::vector<Expr>& k) {
    return nest.load(x, {i[0], i[2] + k[1], i[3] + k[2], k[0]}) * nest.load(w, {i[1], k[0], k[1], k[2]});
  }));
  const loop::NestId id = nest.finish();
  const auto chosen = schedule::choose_contraction(program, program[id], cpu_target("znver5"));
  REQUIRE(chosen.has_value());
  CHECK(kernels::to_plan(*chosen).b == kernels::GemmPlan::B::kWeights);
  CHECK(kernels::to_plan(*chosen).kernel->columns() == 3);
}

TEST_CASE("vectors of k are for rows along k: turning others takes longer than it saves") {
  const auto deep = [](bool along, int64_t count) {
    loop::Program program;
    const auto buffer = [&](const char* name, std::vector<Expr> shape, Storage storage) {
      return loop::whole(
          program, loop::add_buffer(program, {.name = name, .shape = std::move(shape), .storage = storage}));
    };
    const loop::View x = buffer("x", {along ? count : 1000, along ? 1000 : count}, Storage::kArena),
                     w = buffer("w", {4, 1000}, Storage::kParameter),
                     y = buffer("y", {4, count}, Storage::kArena);
    NestBuilder nest(program, "few_by_columns");
    const auto i = nest.dims({4, count});
    nest.store(y, i, nest.reduce(loop::Combine::kSum, {1000}, [&](const std::vector<Expr>& k) {
      return nest.load(w, {i[0], k[0]}) *
             nest.load(x, along ? std::vector{i[1], k[0]} : std::vector{k[0], i[1]});
    }));
    const loop::NestId id = nest.finish();
    const auto chosen = schedule::choose_contraction(program, program[id], cpu_target("znver4"));
    return chosen && kernels::is_gemm(*chosen) && kernels::to_plan(*chosen).kernel->deep;
  };
  for (const int64_t count : {32, 64, 128}) {
    CHECK(deep(true, count));
    CHECK(!deep(false, count));
  }
}

TEST_CASE("rows in long runs are read in place and those in short ones copied, as the model says of both") {
  // A dilated convolution, channels-last: the channels of a tap are contiguous.
  const auto reading_of = [](int64_t channels, int64_t columns) {
    loop::Program program;
    const auto buffer = [&](const char* name, std::vector<Expr> shape, Storage storage) {
      return loop::whole(
          program, loop::add_buffer(program, {.name = name, .shape = std::move(shape), .storage = storage}));
    };
    const loop::View x = buffer("x", {60, 60, channels}, Storage::kArena),
                     w = buffer("w", {columns, channels, 3, 3}, Storage::kParameter),
                     y = buffer("y", {56, 56, columns}, Storage::kArena);
    NestBuilder nest(program, "conv");
    const auto i = nest.dims({56, 56, columns});
    nest.store(y, i, nest.reduce(loop::Combine::kSum, {channels, 3, 3}, [&](const std::vector<Expr>& k) {
      return nest.load(x, {i[0] + 2 * k[1], i[1] + 2 * k[2], k[0]}) * nest.load(w, {i[2], k[0], k[1], k[2]});
    }));
    const loop::NestId id = nest.finish();
    const CpuTarget& target = cpu_target("znver5");
    const auto plans = schedule::contraction_plans(program, program[id], target),
               space = schedule::contraction_space(program, program[id], target);
    REQUIRE(!plans.empty());
    CHECK(plans[0].plan.a == space[0].plan.a);
    return plans[0].plan.a;
  };
  CHECK(reading_of(64, 64) == kernels::GemmPlan::A::kDirect);
  CHECK(reading_of(3, 16) == kernels::GemmPlan::A::kDirect);
  CHECK(reading_of(1, 256) == kernels::GemmPlan::A::kPack);
}

TEST_CASE(
    "no loops without a template are expected to be faster than the micro-kernel that the model chooses") {
  const loop::Program program = loop::parse_program(R"(program linear
  symbol b = input 0 dim 0 in 1..8
  symbol m = input 0 dim 1 in 1..1500
  input x f32 [b, m, 384] ordinal 0
  input w f32 [384, 1152] ordinal 1
  output y f32 [b, m, 1152] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 linear (%i0<b, %i1<m, %i2<1152)
      %0 : f32 = reduce sum (%r0<384)
        %1 : f32 = load x[%i0, %i1, %r0]
        %2 : f32 = load w[%r0, %i2]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1, %i2] %0
)");
  const auto all = schedule::candidates(program, program.nests[0], cpu_target("znver4"));
  REQUIRE(all[0].family.starts_with("gemm."));
  int loops = 0;
  for (const schedule::Candidate& candidate : all) {
    if (!candidate.family.starts_with("loops")) continue;
    ++loops;
    CHECK_MESSAGE(candidate.cycles >= all[0].cycles, candidate.family);
  }
  CHECK(loops > 0);
}

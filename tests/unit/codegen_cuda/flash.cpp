// Builds many forms of attention kernels with NVRTC and checks that registers are not spilled.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/heuristics/flash.h"
#include "tests/support/built_kernel.h"
#include "tests/support/flash_cases.h"

namespace stridec::codegen::cuda {
namespace {

// `choices`: number of kernel variants: one for all sizes; one for few rows with many keys, two for
// grouped-query attention; with a finite mask, all but the first also for the case that every row has a
// visible key.
void build(const test::FlashCase& c, const char* name, size_t choices) {
  const GpuTarget& target = gpu_target(name);
  INFO(c.dtype, " ", c.depth, "x", c.width, " ", c.bias, " for ", target.name);
  loop::Program program = loop::parse_program(test::flash_text(c));
  loop::verify(program);
  loop::Nest& nest = program.nests[0];
  const auto plan = schedule::choose_flash(program, nest, target);
  REQUIRE(plan);
  nest.schedule = kernels::to_schedule(*plan);
  const DeviceNest made = emit_nest(program, nest, target);
  CHECK(made.choices.size() == choices);
  CHECK(made.choices.back().condition.is_const(1));
  CHECK(made.choices.back().aligned.empty());
  for (const DeviceChoice& choice : made.choices)
    for (const DeviceKernel& launch : choice.launches) {
      const Resources info = test::built_kernel(launch, target).resources;
      INFO(info.registers, " registers, ", info.stack_bytes, " bytes of stack");
      if (!target.ptx) CHECK(info.registers > 0);
      CHECK(info.stack_bytes <= 96);
    }
}

// A decoder step with `rows` rows and 4096 keys.
void build_step(test::FlashCase c, int rows, const char* schedule) {
  INFO(rows, " rows of ", c.depth);
  std::string text = test::flash_text(c);
  const auto fix = [&](const std::string& from, const std::string& to) { text = replaced(text, from, to); };
  fix("symbol past = input 3 dim 3 in 0..65536", "symbol past = input 3 dim 3 in 2048..65536");
  fix("symbol s = input 0 dim 2 in 0..65536", cat("symbol s = input 0 dim 2 in ", rows, "..", rows));
  fix("symbol b = input 0 dim 0 in 0..", "symbol b = input 0 dim 0 in 1..1");
  loop::Program program = loop::parse_program(text);
  loop::Nest& nest = program.nests[0];
  const GpuTarget& target = gpu_target("sm_90a");
  const auto plan = schedule::choose_flash(program, nest, target);
  REQUIRE(plan);
  nest.schedule = kernels::to_schedule(*plan);
  CHECK(loop::to_string(nest.schedule).find(schedule) != std::string::npos);
  const DeviceNest made = emit_nest(program, nest, target);
  // At run time: all blocks share long key ranges, a cluster's blocks shorter ones, and short ones are not
  // shared.
  std::vector<int> clusters = plan->spread ? std::vector{1, 8, 2, 1} : std::vector{1};
  if (c.depth % 8 == 0) clusters.push_back(1);
  REQUIRE(made.choices.size() == clusters.size());
  CHECK(made.choices[0].launches.size() == 1);
  CHECK(made.choices[0].launches[0].counter_bytes.is_const(0) == (plan->spread == 0));
  // The first key steps of shared ranges are prefetched to L2 before the previous kernel has ended.
  const std::string& code = made.choices[0].launches[0].code.text;
  const size_t ahead = code.find(" prefetch(k_from"), wait = code.find("wait_predecessor();");
  REQUIRE(wait != std::string::npos);
  if (plan->spread) CHECK(ahead < wait);
  for (size_t i = 0; i < clusters.size(); ++i)
    for (const DeviceKernel& launch : made.choices[i].launches) {
      CHECK(launch.cluster == clusters[i]);
      const Resources info = test::built_kernel(launch, target).resources;
      CHECK(info.stack_bytes <= 96);
    }
}

TEST_CASE("attention of few rows: blocks share the keys") {
  build_step({.dtype = "bf16"}, 1, "tile 16 64; spread 1 4 2");
  build_step({.dtype = "bf16", .depth = 128, .width = 128, .bias = "load", .fixed = true}, 4,
             "tile 16 32; spread 1 4 2");
  build_step({.depth = 72, .width = 40, .bias = "causal", .guard = true}, 16, "spread");
  build_step({.depth = 33, .width = 17}, 3, "spread");
  build_step({}, 17, "tile 64 64");
}

// 8 tiles per sequence, 32 steps of 256 keys each, 132 multiprocessors.
TEST_CASE("attention of few rows: blocks have keys of one tile alone where that leaves few without work") {
  loop::Program program = loop::parse_program(test::flash_text({.fixed = true, .single = true}));
  program.nests[0].schedule =
      kernels::to_schedule(kernels::FlashPlan{.rows = 16, .keys = 64, .spread = 1, .warps = 4});
  const DeviceNest made = emit_nest(program, program.nests[0], gpu_target("sm_90a"));
  REQUIRE(made.choices[0].launches.size() == 1);
  const auto blocks = [&](int64_t sequences, int64_t keys) {
    return sym::evaluate(made.choices[0].launches[0].grid[0], [&](sym::Expr var) -> std::optional<int64_t> {
      return var == sym::var("b") ? sequences : var == sym::var("s") ? 1 : keys - 1;
    });
  };
  CHECK(blocks(1, 8192) == 128);  // 16 blocks per tile, of 2 steps
  // 5 blocks per tile, of at most 7 steps; 128 blocks of 6 steps would have parts of two tiles.
  CHECK(blocks(3, 8192) == 120);
  CHECK(blocks(6, 8192) == 128);   // 2 blocks per tile would have 16 steps, 128 blocks have 12
  CHECK(blocks(64, 8192) == 132);  // more tiles than blocks
}

// Tensor cores compute f32 by three multiplications at half the rate of f16: some are slower than FMAs.
TEST_CASE("attention of 32 bits is one kernel where that pays") {
  const auto pays = [](const test::FlashCase& c, const char* target) {
    const loop::Program program = loop::parse_program(test::flash_text(c));
    const auto flash = kernels::match_flash(program, program.nests[0]);
    REQUIRE(flash);
    return schedule::pays(*flash, program.facts, gpu_target(target));
  };
  for (const char* target : {"sm_80", "sm_90a"})
    for (const char* dtype : {"f16", "tf32", "f32"}) CHECK(pays({.dtype = dtype}, target));
  CHECK(pays({.dtype = "f16", .depth = 256, .width = 256}, "sm_86"));
  CHECK(pays({.dtype = "tf32"}, "sm_86"));
  CHECK_FALSE(pays({.dtype = "f32", .depth = 256, .width = 256}, "sm_86"));
  CHECK(pays({.dtype = "f32", .single = true}, "sm_86"));  // memory-bound
  // 8 heads with 128 rows and keys are too few for one kernel to hide a warp's latency; those of 8 sequences
  // suffice.
  const auto fixed = [](int sequences) {
    std::string text = test::flash_text({.dtype = "f32"});
    for (const auto& [symbol, value] : {std::pair("b = input 0 dim 0 in 0..", sequences),
                                        {"s = input 0 dim 2 in 0..65536", 127},
                                        {"past = input 3 dim 3 in 0..65536", 1}}) {
      const std::string name(symbol, std::string_view(symbol).find(" in "));
      text = replaced(text, cat("symbol ", symbol), cat("symbol ", name, " in ", value, "..", value));
    }
    const loop::Program program = loop::parse_program(text);
    return schedule::pays(*kernels::match_flash(program, program.nests[0]), program.facts,
                          gpu_target("sm_90a"));
  };
  CHECK_FALSE(fixed(1));
  CHECK(fixed(8));
}

TEST_CASE("attention: head sizes, masks and dtypes") {
  for (const char* target : {"sm_90a", "sm_86"}) {
    const bool groups = gpu_target(target).wgmma;  // tiles of several sizes
    build({.depth = 128, .width = 128, .bias = "causal"}, target, groups ? 4 : 3);
    build({.dtype = "bf16", .bias = "load", .group = 4, .guard = true}, target, groups ? 5 : 4);
    build({.depth = 256, .width = 256}, target, 3);
    build({.dtype = "bf16", .bias = "late"}, target, groups ? 9 : 5);
  }
  for (const char* dtype : {"f32", "tf32"}) {
    build({.dtype = dtype, .bias = "causal"}, "sm_90a", 3);
    build({.dtype = dtype, .depth = 128, .width = 128, .bias = "load", .group = 4, .guard = true}, "sm_90a",
          4);
    build({.dtype = dtype, .depth = 33, .width = 17}, "sm_80", 2);
  }
  build({.depth = 33, .width = 17, .fixed = true}, "sm_80", 2);
  build({.dtype = "bf16", .depth = 72, .width = 40, .bias = "lowest"}, "ptx", 3);
}

}  // namespace
}  // namespace stridec::codegen::cuda

// Running sums and extrema, which cooperating thread groups compute tile by tile.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/unit/codegen_cuda/memory_bound.h"

namespace stridec::codegen::cuda {
namespace {

const Program kRunning = {"running sums of rows, and what is left to the end",
                          R"(  input x T [d0, d1] ordinal 0
  output y T [d0, d1] ordinal 0
  output z f32 [d0] ordinal 1
  inputs (x)
  outputs (y, z)
  steps
    nest 0 running (%a<d0)
      %0 : f32 = constant 0.25
      %2 : f32 = scan (%i<d1) [%1 = %0]
        %3 : T = load x[%a, %i]
        %4 : f32 = cast %3
        %7 : f32 = floor %4
        %5 : f32 = add %1 %7
        %6 : T = cast %5
        store y[%a, %i] %6
        yield %5
      store z[%a] %2
)"};

const Program kRunningBack = {"the largest so far of a middle axis, from its end on, each without its own",
                              R"(
  input x T [d0, d1, d2] ordinal 0
  output y T [d0, d1, d2] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 running (%a<d0, %j<d2)
      %0 : T = constant 1
      %2 : T = scan reverse (%i<d1) [%1 = %0]
        %3 : T = load x[%a, %i, %j]
        store y[%a, %i, %j] %1
        %5 : T = max %3 %1
        yield %5
)"};

const Program kRunningProducts = {"running sums of products of columns", R"(  input x T [d0, d1] ordinal 0
  input w f32 [d0, d1] ordinal 1
  output y f32 [d0, d1] ordinal 0
  output z f32 [d1] ordinal 1
  inputs (x, w)
  outputs (y, z)
  steps
    nest 0 running (%j<d1)
      %0 : f32 = constant 0.5
      %2 : f32 = scan (%i<d0) [%1 = %0]
        %3 : T = load x[%i, %j]
        %4 : f32 = cast %3
        %5 : f32 = load w[%i, %j]
        %6 : f32 = mul %4 %5
        %7 : f32 = floor %6
        %8 : f32 = add %1 %7
        store y[%i, %j] %8
        yield %8
      store z[%j] %2
)"};

// The first linked launch of a nest's choices.
DeviceKernel linked(const DeviceNest& nest) {
  for (const DeviceChoice& choice : nest.choices)
    if (!choice.launches[0].counter_bytes.is_const(0)) return choice.launches[0];
  return {};
}

TEST_CASE("long rows of few points are linked blocks' work") {
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2500, 40}, {1030, 17}, {700, 64}})
      for (const bool fixed : {false, true}) check(kRunningProducts, dtype, {shape, fixed});
  const auto made = [](const Program& p, const char* dtype, const std::vector<int64_t>& shape) {
    loop::Program program = parse(p, dtype, {shape, true});
    schedule::choose_gpu(program, gpu_target("sm_90a"));
    return emit_nest(program, program.nests[0], gpu_target("sm_90a"));
  };
  // 16 warps of 32 columns, and as many iterations of 16 rows as fit in 64 KiB: four bytes per element of x,
  // or two and four for w.
  const DeviceNest columns = made(kRunningBack, "f32", {2, 4096, 64}),
                   products = made(kRunningProducts, "f16", {4096, 64});
  CHECK(linked(columns).shared_bytes.is_const(64 << 10));
  CHECK(linked(columns).grid[0].is_const(2 * 2 * 4096 / 512));
  CHECK(linked(products).shared_bytes.is_const(48 << 10));
  CHECK(linked(products).grid[0].is_const(2 * 4096 / 256));
  CHECK(linked(made(kRunning, "f16", {3, 8192})).grid[0].is_const(3 * 2));
  CHECK(linked(made(kRunning, "f16", {3000, 8192})).counter_bytes.is_const(0));  // enough rows
  CHECK(linked(made(kRunning, "f16", {3, 4096})).counter_bytes.is_const(0));     // rows of one tile
  CHECK(linked(made(kRunningBack, "f32", {2, 512, 64})).counter_bytes.is_const(0));
}

TEST_CASE("running sums of rows go by vectors wherever they begin") {
  const auto has = [](const Program& p, const std::vector<int64_t>& shape, const std::string& what) {
    return first_text(parse(p, "bf16", {shape, true})).find(what) != std::string::npos;
  };
  CHECK(has(kRunning, {4096, 1023}, "sd_load_within<8>(p0"));
  CHECK_FALSE(has(kRunning, {4096, 1024}, "sd_load_within<8>(p0"));  // each row starts at a vector boundary
  // The rows of the terms and of the result have different alignment.
  const Program apart = {"", replaced(kRunning.text, "store y[%a, %i]", "store y[%a, d1 - 1 - %i]")};
  CHECK_FALSE(has(apart, {4096, 1023}, "sd_load_within<8>(p0"));
  check(apart, "bf16", {{5, 1023}});
}

TEST_CASE("running sums are a team's work") {
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 1024}, {19, 333}, {2, 9001}, {1, 9008}, {2, 0}, {70, 7}})
      for (const bool fixed : {false, true}) check(kRunning, dtype, {shape, fixed});
  for (const char* dtype : {"f32", "i32", "f64"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {2, 300, 7}, {1, 5000, 2}, {1, 70, 40}, {2, 600, 33}, {1, 0, 40}, {2, 5, 0}})
      for (const bool fixed : {false, true}) check(kRunningBack, dtype, {shape, fixed});
  // Rows of one tile, and few long rows, forwards and backwards, at any alignment.
  const Program back = {"running sums of rows from the end",
                        replaced(kRunning.text, "scan (", "scan reverse (")};
  for (const char* dtype : {"bf16", "f32", "f64"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {67, 65}, {5, 24}, {9, 25}, {33, 120}, {7, 121}, {2, 4097}, {3, 12289}, {0, 65}, {5, 1}})
      for (const bool fixed : {false, true}) {
        check(kRunning, dtype, {shape, fixed});
        check(back, dtype, {shape, fixed});
      }
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1, 2100, 40}, {2, 1025, 33}, {1, 1024, 16}})
    for (const char* dtype : {"f16", "f32", "i32"})
      for (const bool fixed : {false, true}) check(kRunningBack, dtype, {shape, fixed});
  // A scan whose steps cannot be combined stays in one thread.
  loop::Program program = parse(kRunning, "f32", {{64, 1024}, true});
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  CHECK(loop::to_string(program.nests[0].schedule) == "team 32");
  program = parse({"", replaced(kRunning.text, "add %1 %7", "sub %7 %1")}, "f32", {{64, 1024}, true});
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  CHECK(loop::to_string(program.nests[0].schedule) == "");
}

}  // namespace
}  // namespace stridec::codegen::cuda

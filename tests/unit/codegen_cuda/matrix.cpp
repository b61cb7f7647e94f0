// Builds every tile of GEMMs x dtypes x layouts x epilogues with NVRTC and limits register spills.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"
#include "compiler/schedule/layout/order_weights.h"
#include "compiler/sym/text.h"
#include "tests/support/built_kernel.h"
#include "tests/support/matrix_cases.h"

namespace stridec::codegen::cuda {
namespace {

using test::MatrixCase;

// Allowed spill bytes per thread: addresses of a tile that are live across its loop. Copies of single
// elements, which only unaligned sizes and pointers need, have 16 addresses per operand.
constexpr int kSpills = 96, kElementSpills = 16 * 16;

void build(const MatrixCase& c, const std::string& kernel, const GpuTarget& target) {
  INFO(c.name, " on ", kernel, " for ", target.name);
  loop::Program program = loop::parse_program(c.text);
  loop::verify(program);
  loop::Nest& nest = program.nests[0];
  bool found = false;
  for (const auto& ranked : schedule::matrix_plans(program, nest, target)) {
    if (ranked.plan.kernel->name != kernel || found) continue;
    found = true;
    nest.schedule = kernels::to_schedule(ranked.plan);
    CHECK(kernels::to_schedule(kernels::to_matrix_plan(
              loop::parse_schedule(loop::to_string(nest.schedule)))) == nest.schedule);
    const DeviceNest device = emit_nest(program, nest, target);
    for (const DeviceChoice& choice : device.choices)
      for (const DeviceKernel& launch : choice.launches) {
        const std::string text = cat("#define KERNEL kernel\n", launch.code.text);
        // Accumulators are used only after the wait for wgmma, whose effect on them the compiler does not
        // know.
        constexpr std::string_view kWait = "products_wait<0>();\n";
        for (size_t at = 0; (at = text.find(kWait, at)) != std::string::npos; at += kWait.size()) {
          const size_t next = text.find_first_not_of(' ', at + kWait.size());
          CHECK(text.compare(next, 15, "products_ready(") == 0);
        }
        static std::set<std::string> built;  // kernels share the variant for all sizes
        if (!built.insert(cat(target.name, text)).second) continue;
        if (const char* folder = std::getenv("STRIDEC_DUMP")) {
          static int count = 0;
          std::ofstream(cat(folder, "/", count++, ".", c.name, ".", kernel, ".cu")) << text;
        }
        const Resources info = test::built_kernel(launch, target).resources;
        INFO(info.registers, " registers, ", info.stack_bytes, " bytes of stack");
        CHECK(info.registers > 0);
        CHECK(info.stack_bytes <= (&choice == &device.choices.back() ? kElementSpills : kSpills));
      }
  }
  CHECK(found);
}

TEST_CASE("tensor cores: every tile") {
  for (const auto& kernel : kernels::matrix_kernels()) {
    const bool tensor = kernel.is_tensor(), deep = kernels::wants_depth(kernel);
    const std::string dtype = !tensor                     ? kernel.element_bytes == 8 ? "f64" : "f32"
                              : kernel.element_bytes == 4 ? "tf32"
                              : kernel.element_bytes == 1 ? "u8*i8"
                                                          : "f16";
    // Narrow tiles only with operands contiguous along the depth.
    build(test::matmul_case(dtype, "m", "n", "k", deep || kernel.columns % 64 != 0), std::string(kernel.name),
          gpu_target("sm_90a"));
  }
}

TEST_CASE("every pair of types that tensor cores of a GPU multiply") {
  for (const char* name : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    const GpuTarget& target = gpu_target(name);
    for (const char* dtype :
         {"tf32", "u8", "i8", "u8*i8", "i8*u8", "f8e4m3fn", "f8e5m2", "f8e4m3fn*f8e5m2"}) {
      const bool fp8 = dtype[0] == 'f' && !target.fp8_mma, wide = dtype[0] == 't';
      const auto c = test::matmul_case(dtype, "m", "n", "k", true);
      if (fp8) {
        const loop::Program program = loop::parse_program(c.text);
        for (const auto& ranked : schedule::matrix_plans(program, program.nests[0], target))
          CHECK(!ranked.plan.kernel->is_tensor());
        continue;
      }
      build(c, wide ? "mma.64x64x32.32bit" : "mma.64x64x128.8bit", target);
      if (target.wgmma) build(c, wide ? "wgmma.64x128x32.32bit" : "wgmma.128x128x128.8bit", target);
    }
  }
}

TEST_CASE("elements of 32 and 8 bits: along the rows, split, convolutions, requantised") {
  const GpuTarget& target = gpu_target("sm_90a");
  for (const char* dtype : {"tf32", "u8*i8", "f8e4m3fn"}) {
    const bool wide = dtype[0] == 't';
    const std::string wgmma = wide ? "wgmma.64x128x32.32bit" : "wgmma.128x128x128.8bit";
    build(test::matmul_case(dtype, "m", "n", "k", false), wide ? "mma.64x64x16.32bit" : "mma.64x64x32.8bit",
          target);
    for (const test::Conv& c : test::convolutions())
      if (c.name == "conv3x3d2_wide" || c.name == "conv_stem" || c.name == "conv_grouped_wide")
        if (c.channels_last) build(test::convolution_case(dtype, c), test::tile_of(wgmma, dtype, c), target);
  }
  build(test::matmul_case("u8*i8", "m", "n", "k", true, "", test::Behind::kQuantized),
        "wgmma.128x128x128.8bit", target);
}

TEST_CASE(
    "GEMMs of run-time factors that are contiguous along the rows, where instructions take only the depth") {
  const loop::Program program = loop::parse_program(test::matmul_case("tf32", "m", "n", "k", false).text);
  for (const auto& ranked : schedule::matrix_plans(program, program.nests[0], gpu_target("sm_90a")))
    CHECK(ranked.plan.kernel->name == "mma.64x64x16.32bit");
  // The layout of a weight can be chosen.
  loop::Program weights = loop::parse_program(
      test::matmul_case("tf32", "m", "4096", "4096", false, "", test::Behind::kNothing).text);
  weights.buffers[1].storage = loop::Storage::kParameter;
  const auto ranked = schedule::matrix_plans(weights, weights.nests[0], gpu_target("sm_90a"));
  CHECK(ranked[0].plan.kernel->is_wgmma());
  weights.nests[0].schedule = kernels::to_schedule(ranked[0].plan);
  schedule::order_weights(weights);
  CHECK(weights.prepack.size() == 1);
}

TEST_CASE("images whose elements come one by one have the tile that is built for these, and no other") {
  for (const char* dtype : {"f16", "tf32", "u8*i8"})
    for (const test::Conv& c : test::convolutions()) {
      CAPTURE(c.name);
      const loop::Program program = loop::parse_program(test::convolution_case(dtype, c).text);
      const std::string tile = test::tile_of("any", dtype, c);
      size_t others = 0;
      for (const auto& ranked : schedule::matrix_plans(program, program.nests[0], gpu_target("sm_90a")))
        others += ranked.plan.kernel->name != tile;
      CHECK((others == 0) == (tile != "any"));
    }
}

TEST_CASE("layouts, dtypes and epilogues of one tile") {
  for (const char* target : {"sm_80", "sm_90a"})
    for (const char* dtype : {"bf16", "f32"})
      for (const bool transposed : {false, true}) {
        const std::string kernel = dtype[0] == 'b' ? "mma.64x64x64" : "simt.64x64x16";
        build(test::matmul_case(dtype, "m", "n", "k", transposed), kernel, gpu_target(target));
        build(test::matmul_case(dtype, "77", "96", "64", transposed), kernel, gpu_target(target));
      }
  for (const test::Conv& c : test::convolutions()) {
    build(test::convolution_case("f16", c), test::tile_of("mma.64x64x64", "f16", c), gpu_target("sm_90a"));
    build(test::convolution_case("f32", c), "simt.64x64x16", gpu_target("sm_90a"));
  }
}

// The kernel that the cost model ranks first.
std::string chosen(const MatrixCase& c) {
  const loop::Program program = loop::parse_program(c.text);
  const auto schedule = schedule::choose_cuda_contraction(program, program.nests[0], gpu_target("sm_90a"));
  return schedule ? std::string(kernels::to_matrix_plan(*schedule).kernel->name) : "none";
}

TEST_CASE(
    "a multiprocessor with one tile has a deep ring, one with many large tiles in turns, one with two the "
    "largest") {
  const auto product = [](const char* m, const char* n, const char* k) {
    return chosen(test::matmul_case("bf16", m, n, k, false, "", test::Behind::kGelu));
  };
  CHECK(product("1024", "1024", "1024") == "wgmma.128x64x64.deep");
  CHECK(product("512", "768", "3072").ends_with(".deep"));
  CHECK(product("4096", "4096", "4096") == "wgmma.128x128x64.turns");
  CHECK(product("2048", "2048", "8192") == "wgmma.128x256x64");
}

TEST_CASE(
    "few rows by weights: weights are the lines of tiles, and blocks share the depth where columns are few") {
  const auto plan = [](const char* n, const char* k) {
    loop::Program program =
        loop::parse_program(test::matmul_case("bf16", "16", n, k, true, "", test::Behind::kNothing).text);
    program.buffers[1].storage = loop::Storage::kParameter;
    return kernels::to_matrix_plan(
        *schedule::choose_cuda_contraction(program, program.nests[0], gpu_target("sm_90a")));
  };
  for (const auto& [n, k] : {std::pair{"16384", "2048"}, {"2048", "2048"}, {"4096", "4096"}}) {
    const kernels::MatrixPlan chosen = plan(n, k);
    INFO(n, " columns, ", chosen.kernel->name);
    CHECK(chosen.kernel->columns == 16);
    CHECK(sym::to_string(chosen.columns[0]) == "%m");
    CHECK((chosen.split > 1) == (std::string_view(n) != "16384"));
  }
}

TEST_CASE(
    "few rows by weights: whose steps all lie in the ring by the time that the launch before ends share more "
    "of the depth") {
  const auto split = [](const char* k) {
    loop::Program program = loop::parse_program(
        test::matmul_case("bf16", "16", "2048", k, true, "", test::Behind::kNothing).text);
    const auto of = [&](loop::Storage storage) {
      program.buffers[1].storage = storage;
      return kernels::to_matrix_plan(
                 *schedule::choose_cuda_contraction(program, program.nests[0], gpu_target("sm_90a")))
          .split;
    };
    return std::pair(of(loop::Storage::kParameter), of(loop::Storage::kInput));
  };
  const auto [weights, inputs] = split("2048");
  CHECK(weights == 4);
  CHECK(inputs < 4);
}

TEST_CASE(
    "32 rows that wait for weights are one tile's: two would ask memory for the same at the same time") {
  for (const auto& [n, k] : {std::pair{"4096", "4096"}, {"4096", "14336"}, {"14336", "4096"}}) {
    loop::Program program =
        loop::parse_program(test::matmul_case("bf16", "32", n, k, true, "", test::Behind::kNothing).text);
    program.buffers[1].storage = loop::Storage::kParameter;
    const auto chosen = kernels::to_matrix_plan(
        *schedule::choose_cuda_contraction(program, program.nests[0], gpu_target("sm_90a")));
    INFO(n, " by ", k, ": ", chosen.kernel->name);
    CHECK(chosen.kernel->columns == 32);
    CHECK(sym::to_string(chosen.columns[0]) == "%m");
  }
}

TEST_CASE("a product of sizes unknown is made by tiles") {
  CHECK(chosen(test::matmul_case("f32", "m", "n", "k", false)).starts_with("simt."));
  CHECK(chosen(test::matmul_case("bf16", "m", "n", "k", false)).starts_with("wgmma."));
}

// A GEMM of `rows` rows with a weight [k, n].
loop::Program by_weights(const char* dtype, const char* rows, const char* n, const char* k) {
  loop::Program program =
      loop::parse_program(test::matmul_case(dtype, rows, n, k, false, "", test::Behind::kNothing).text);
  program.buffers[1].storage = loop::Storage::kParameter;
  return program;
}

TEST_CASE(
    "products of floats are made by tiles on every GPU, by narrow ones that share the depth where rows are "
    "few") {
  for (const GpuTarget& target : gpu_targets())
    for (const char* dtype : {"f32", "f64", "f16"}) {
      INFO(target.name, " ", dtype);
      const loop::Program unknown = loop::parse_program(test::matmul_case(dtype, "m", "n", "k", false).text);
      CHECK(schedule::choose_cuda_contraction(unknown, unknown.nests[0], target).has_value());
      const loop::Program program = by_weights(dtype, "m", "1024", "8192");
      const auto schedule = schedule::choose_cuda_contraction(program, program.nests[0], target);
      REQUIRE(schedule.has_value());
      const kernels::MatrixPlan plan = kernels::to_matrix_plan(*schedule);
      REQUIRE(!plan.fewer.empty());
      const kernels::MatrixPlan::Fewer& few = plan.fewer[0];
      CHECK(few.split > 1);
      if (dtype[1] == '1') continue;
      CHECK(few.kernel->is_sliced());
      CHECK(few.kernel->rows <= 16);
      CHECK(!plan.kernel->is_sliced());
    }
}

TEST_CASE(
    "parts of sums lie in memory where there are no clusters, and take none where a product is too large") {
  loop::Program program = by_weights("f32", "m", "2048", "2048");
  const auto launches = [&](const char* name, int64_t m) {
    const GpuTarget& target = gpu_target(name);
    program.nests[0].schedule = *schedule::choose_cuda_contraction(program, program.nests[0], target);
    const DeviceKernel kernel = emit_nest(program, program.nests[0], target).choices[0].launches[0];
    const auto value = [&](sym::Expr e) {
      return *sym::evaluate(e, [&](sym::Expr) { return std::optional(m); });
    };
    return std::tuple(kernel.cluster, value(kernel.workspace_bytes), value(kernel.counter_bytes));
  };
  const auto [cluster, workspace, counters] = launches("sm_90a", 4);
  CHECK(cluster > 1);
  CHECK(workspace == 0);
  CHECK(counters == 0);
  const auto [one, parts, arrivals] = launches("sm_80", 4);
  CHECK(one == 1);
  const auto plan = kernels::to_matrix_plan(program.nests[0].schedule);
  CHECK(parts == plan.fewer[0].split * plan.fewer[0].kernel->rows * 2048 * 4);
  CHECK(arrivals == 2048 / plan.fewer[0].kernel->columns * 4);
  CHECK(std::get<1>(launches("sm_80", 4096)) == 64);
}

TEST_CASE(
    "elements that come one by one: a smaller tile has as many blocks as the plan wants, with fewer splits") {
  const GpuTarget& target = gpu_target("sm_90a");
  loop::Program program = loop::parse_program(test::matmul_case("f32", "m", "n", "k", false).text);
  const auto last_cluster = [&](const char* kernel, int64_t split) {
    for (const auto& ranked : schedule::matrix_plans(program, program.nests[0], target)) {
      if (ranked.plan.kernel->name != kernel || ranked.plan.split != split) continue;
      program.nests[0].schedule = kernels::to_schedule(ranked.plan);
      const DeviceNest device = emit_nest(program, program.nests[0], target);
      CHECK(device.choices.front().launches[0].cluster == split);
      return device.choices.back().launches[0].cluster;
    }
    return 0;
  };
  CHECK(last_cluster("simt.64x64x16", 2) == 2);
  CHECK(last_cluster("simt.64x128x16", 2) == 1);
  CHECK(last_cluster("simt.128x128x16", 8) == 2);
  CHECK(last_cluster("simt.32x64x16", 4) == 4);
}

TEST_CASE("weights in the ring of few rows do not wait for the launch before") {
  loop::Program program = by_weights("f32", "4", "2048", "2048");
  const auto waits_first = [&] {
    const GpuTarget& target = gpu_target("sm_90a");
    program.nests[0].schedule = *schedule::choose_cuda_contraction(program, program.nests[0], target);
    const std::string text = emit_nest(program, program.nests[0], target).choices[0].launches[0].code.text;
    const size_t kernel = text.find("KERNEL(");
    return text.find("wait_predecessor();", kernel) < text.find("copy_box2(fill", kernel);
  };
  CHECK_FALSE(waits_first());
  program.buffers[1].storage = loop::Storage::kInput;
  CHECK(waits_first());
}

TEST_CASE("multiply-adds are fed by the copy engine, and blocks that are few spread over the device") {
  const auto kernel_of = [](const char* size) {
    loop::Program program = loop::parse_program(
        test::matmul_case("f32", size, size, size, false, "", test::Behind::kNothing).text);
    const auto schedule = schedule::choose_cuda_contraction(program, program.nests[0], gpu_target("sm_90a"));
    REQUIRE(schedule.has_value());
    program.nests[0].schedule = *schedule;
    return emit_nest(program, program.nests[0], gpu_target("sm_90a")).choices[0].launches[0];
  };
  const DeviceKernel few = kernel_of("512"), many = kernel_of("4096");
  CHECK(many.maps.size() == 2);
  const int64_t all = gpu_target("sm_90a").shared_bytes_sm, share = (*sym::as_const(few.grid[0]) + 131) / 132;
  CHECK((share + 1) * *sym::as_const(few.shared_bytes) > all);
  CHECK(share * *sym::as_const(few.shared_bytes) < all);
  CHECK(4 * *sym::as_const(many.shared_bytes) < all);
}

TEST_CASE("threads take a convolution's weights by output channels") {
  const test::Conv conv{"c", "8", 28, 28, 32, 64, 3, 1, 1, 1, 1, true, true};
  loop::Program program = loop::parse_program(test::convolution_case("f32", conv).text);
  program.buffers[1].storage = loop::Storage::kParameter;
  const auto ranked = schedule::matrix_plans(program, program.nests[0], gpu_target("sm_90a"));
  program.nests[0].schedule = kernels::to_schedule(ranked[0].plan);
  schedule::order_weights(program);
  REQUIRE(program.prepack.size() == 1);
  const loop::Buffer& ordered = program.buffers.back();
  CHECK(sym::as_const(ordered.shape[0]) == 3);
  CHECK(sym::as_const(ordered.shape[3]) == 64);
}

}  // namespace
}  // namespace stridec::codegen::cuda

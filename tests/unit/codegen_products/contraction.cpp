#include "compiler/codegen/cpu/contraction.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/loop/build.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/layout/pack_weights.h"
#include "tests/support/contraction_check.h"
#include "tests/support/contraction_harness.h"
#include "tests/support/tiles.h"

using namespace stridec;
using loop::NestBuilder;
using loop::Program;
using loop::Storage;
using loop::Value;
using loop::View;
using sym::Expr;
using test::buffer;
using test::Case;
using test::check;
using test::check_plan;
using test::conv;
using test::symbol;
using test::weight;

namespace {

struct Gemm {
  bool a_transposed = false, b_transposed = false, out_transposed = false;
  bool epilogue = true;
  DType operands = DType::kF32, accumulator = DType::kF32;
  std::optional<DType> second = {};  // dtype of b, if different
  int64_t zero = 0;                  // subtracted from both
  bool table = false;                // the sum, clamped to a byte, indexes a lookup table
};

Case gemm(Expr m, Expr n, Expr k, Program program, Gemm options = {}) {
  const View a = buffer(program, "a", options.a_transposed ? std::vector{k, m} : std::vector{m, k},
                        Storage::kInput, options.operands);
  const View b = buffer(program, "b", options.b_transposed ? std::vector{n, k} : std::vector{k, n},
                        Storage::kInput, options.second.value_or(options.operands));
  const View bias = buffer(program, "bias", {n}, Storage::kInput, options.accumulator);
  const View out = buffer(program, "out", options.out_transposed ? std::vector{n, m} : std::vector{m, n},
                          Storage::kArena, options.accumulator);
  NestBuilder nb(program, "gemm");
  const Expr i = nb.dim(m), j = nb.dim(n);
  Value sum = nb.reduce(loop::Combine::kSum, {k}, [&](const std::vector<Expr>& at) {
    auto pair = [](bool swap, Expr x, Expr y) { return swap ? std::vector{y, x} : std::vector{x, y}; };
    Value x = nb.cast(nb.load(a, pair(options.a_transposed, i, at[0])), options.accumulator);
    Value y = nb.cast(nb.load(b, pair(options.b_transposed, at[0], j)), options.accumulator);
    if (options.zero) {
      const Value zero = nb.constant(options.accumulator, static_cast<double>(options.zero));
      x = x - zero, y = y - zero;
    }
    return x * y;
  });
  if (options.epilogue) sum = max(sum + nb.load(bias, {j}), nb.constant(options.accumulator, 0));
  if (options.table) {
    const View table = buffer(program, "table", {256}, Storage::kInput, DType::kU8);
    const Value byte = nb.cast(nb.cast(sum, DType::kF32), DType::kU8, true);
    sum = nb.cast(nb.load(table, {nb.bind(byte, 256)}), options.accumulator);
  }
  nb.store(out, options.out_transposed ? std::vector{j, i} : std::vector{i, j}, sum);
  const loop::NestId id = nb.finish();
  return {std::move(program), id};
}

}  // namespace

TEST_CASE("matrix products of odd sizes") {
  for (auto [m, n, k] : {std::array{1, 17, 5}, {7, 48, 3}, {13, 50, 20}, {33, 100, 65}, {2, 129, 40}}) {
    check(gemm(m, n, k, {}));
  }
}

TEST_CASE("a matrix product of symbolic size, empty ones included") {
  Program program;
  const Expr m = symbol(program, "m", 0, 512), n = symbol(program, "n", 0, 512),
             k = symbol(program, "k", 0, 512);
  check(gemm(m, n, k, program), {{{m, 5}, {n, 7}, {k, 3}},
                                 {{m, 1}, {n, 64}, {k, 33}},
                                 {{m, 130}, {n, 131}, {k, 1}},
                                 {{m, 0}, {n, 8}, {k, 8}},
                                 {{m, 3}, {n, 9}, {k, 0}}});
}

TEST_CASE("a row times 512 KB of weights, which takes as long as they take to load, is worth two threads") {
  auto [program, id] = gemm(1, 256, 512, {});
  const CpuTarget target = cpu_target("x86-64-v4");
  for (const auto& ranked : schedule::contraction_plans(program, program[id], target))
    if (ranked.plan.kernel->name == "gemm.f32.6x64") program[id].schedule = kernels::to_schedule(ranked.plan);
  const codegen::Kernel kernel = codegen::cpu::emit_contraction(program, program[id], target);
  CHECK(kernel.tasks.value() == 4);
  CHECK(kernel.grain.value() < 4);
}

TEST_CASE("few columns are summed by vectors of k") {
  const CpuTarget& native = cpu_target("native");
  auto deep = [&](const Case& c) {
    const auto plans = schedule::contraction_plans(c.program, c.program[c.nest], native);
    return std::count_if(plans.begin(), plans.end(), [](const auto& p) { return p.plan.kernel->deep; });
  };
  for (int64_t columns : {1, 3, 9, 17}) {
    const Case c = gemm(29, columns, 70, {}, {.b_transposed = columns == 3});
    CHECK((deep(c) > 0) == (columns < native.lanes(4)));
    check(c);
  }
  check(conv(2, {.in = {7, 5}, .kernel = {3, 3}, .channels = 32, .filters = 3, .pad = 1}, {}));
  check(conv(1, {.in = {6, 9}, .kernel = {3, 2}, .channels = 5, .filters = 1, .channels_last = false}, {}));
  for (const auto& [operands, second, sums] : {std::tuple{DType::kF64, DType::kF64, DType::kF64},
                                               {DType::kBF16, DType::kBF16, DType::kF32},
                                               {DType::kF32, DType::kBF16, DType::kF32},
                                               {DType::kU8, DType::kI8, DType::kI32},
                                               {DType::kI8, DType::kU8, DType::kI32}})
    for (int64_t k : {3, 130})
      check(gemm(13, 3, k, {},
                 {.a_transposed = k == 130, .operands = operands, .accumulator = sums, .second = second}));
  Program program;
  const Expr m = symbol(program, "m", 0, 512), n = symbol(program, "n", 0, 12),
             k = symbol(program, "k", 0, 512);
  check(gemm(m, n, k, program), {{{m, 5}, {n, 7}, {k, 3}},
                                 {{m, 41}, {n, 1}, {k, 33}},
                                 {{m, 0}, {n, 3}, {k, 8}},
                                 {{m, 3}, {n, 9}, {k, 0}}});
}

TEST_CASE("operands and results in every order") {
  for (int bits = 0; bits < 8; ++bits) {
    check(gemm(19, 37, 23, {},
               {.a_transposed = (bits & 1) != 0,
                .b_transposed = (bits & 2) != 0,
                .out_transposed = (bits & 4) != 0}));
  }
}

TEST_CASE("narrow operands are converted first") {
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kI8, DType::kU8}) {
    check(gemm(11, 35, 18, {}, {.operands = dtype}));
  }
}

TEST_CASE("products of bytes are summed in 32 bits") {
  for (const auto& [a, b] :
       {std::pair{DType::kU8, DType::kI8}, {DType::kI8, DType::kI8}, {DType::kU8, DType::kU8}}) {
    for (auto [m, n, k] : {std::array{1, 17, 5}, {13, 50, 20}, {33, 100, 67}, {70, 40, 192}}) {
      const int64_t zero = a == b ? 100 : 0;
      check(gemm(m, n, k, {}, {.operands = a, .accumulator = DType::kI32, .second = b, .zero = zero}));
    }
    for (int bits = 1; bits < 8; bits += a == b ? 3 : 2) {
      check(gemm(19, 37, 24 + bits, {},
                 {.a_transposed = (bits & 1) != 0,
                  .b_transposed = (bits & 2) != 0,
                  .out_transposed = (bits & 4) != 0,
                  .operands = a,
                  .accumulator = DType::kI32,
                  .second = b}));
    }
    Program program;
    const Expr m = symbol(program, "m", 0, 512), n = symbol(program, "n", 0, 512),
               k = symbol(program, "k", 0, 512);
    check(gemm(m, n, k, program, {.operands = a, .accumulator = DType::kI32, .second = b}),
          {{{m, 5}, {n, 7}, {k, 3}},
           {{m, 130}, {n, 131}, {k, 1}},
           {{m, 0}, {n, 8}, {k, 8}},
           {{m, 3}, {n, 9}, {k, 0}}});
  }
}

TEST_CASE("an epilogue that looks sums up") {
  for (const DType accumulator : {DType::kI32, DType::kF32}) {
    const DType operands = accumulator == DType::kI32 ? DType::kI8 : DType::kF32;
    for (auto [m, n, k] : {std::array{1, 17, 5}, {13, 50, 20}, {33, 100, 67}})
      check(gemm(m, n, k, {}, {.operands = operands, .accumulator = accumulator, .table = true}));
    check(gemm(13, 50, 20, {},
               {.out_transposed = true, .operands = operands, .accumulator = accumulator, .table = true}));
  }
}

TEST_CASE("bfloat16 in every order and of odd depth") {
  for (int bits = 0; bits < 8; bits += 3) {
    check(gemm(19, 37, 40 + bits, {},
               {.a_transposed = (bits & 1) != 0,
                .b_transposed = (bits & 2) != 0,
                .out_transposed = (bits & 4) != 0,
                .operands = DType::kBF16}));
  }
  check(gemm(50, 70, 96, {}, {.operands = DType::kBF16}));
}

TEST_CASE("what runs on a tile's short sums runs between the products of the next tile") {
  const CpuTarget& target = cpu_target("native");
  for (const DType operands : {DType::kF32, DType::kU8}) {
    for (const auto& [k, between] : {std::pair{3, true}, {40, true}, {4000, false}}) {
      // Tiles of the micro-kernel's rows and of one row less, several tiles per task, and columns that are
      // not whole vectors.
      const bool bytes = operands == DType::kU8;
      const Case c = gemm(151, 130, k, {},
                          {.operands = operands,
                           .accumulator = bytes ? DType::kI32 : DType::kF32,
                           .second = bytes ? DType::kI8 : DType::kF32});
      for (const auto& ranked : schedule::contraction_plans(c.program, c.program[c.nest], target)) {
        if (ranked.plan.kernel->tiles) continue;
        kernels::GemmPlan plan = ranked.plan;
        plan.tiles = 5;
        loop::Nest nest = c.program[c.nest];
        nest.schedule = kernels::to_schedule(plan);
        const std::string text = codegen::cpu::emit_contraction(c.program, nest, target).text;
        CHECK((text.find("products::tile_of") != std::string::npos) == between);
        if (between) check_plan(c, plan, target, {{}});
      }
    }
  }
}

TEST_CASE("kernels of tile registers are made of their instructions") {
  const CpuTarget& target = cpu_target("sapphirerapids");
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    if (!kernel.tiles) continue;
    const std::string text = codegen::compile_to_assembly("tiles.cpp", kernels::gemm_text(kernel, target),
                                                          {.cpu = target.name, .tune = target.tune});
    for (const char* instruction : {"ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tdp", "tilestored"})
      CHECK_MESSAGE(text.find(instruction) != std::string::npos, std::string(kernel.name), " ", instruction);
  }
}

TEST_CASE("double precision") {
  check(gemm(21, 43, 30, {}, {.operands = DType::kF64, .accumulator = DType::kF64}));
}

TEST_CASE("a batch of products of strided views, as in attention") {
  Program program;
  const Expr batch = symbol(program, "batch", 1, 8), s = symbol(program, "s", 1, 256);
  const View qkv = buffer(program, "qkv", {batch, s, 3, 2, 24}, Storage::kInput);
  const View scores = buffer(program, "scores", {batch, 2, s, s}, Storage::kArena);
  const View out = buffer(program, "out", {batch, s, 2, 24}, Storage::kArena);
  NestBuilder first(program, "qk");
  {
    const auto i = first.dims({batch, 2, s, s});
    const Value sum = first.reduce(loop::Combine::kSum, {24}, [&](const std::vector<Expr>& at) {
      return first.load(qkv, {i[0], i[2], 0, i[1], at[0]}) * first.load(qkv, {i[0], i[3], 1, i[1], at[0]});
    });
    first.store(scores, i, sum * first.constant(DType::kF32, 0.125));
  }
  const loop::NestId qk = first.finish();
  NestBuilder second(program, "pv");
  {
    const auto i = second.dims({batch, 2, s, 24});
    const Value sum = second.reduce(loop::Combine::kSum, {s}, [&](const std::vector<Expr>& at) {
      return second.load(scores, {i[0], i[1], i[2], at[0]}) * second.load(qkv, {i[0], at[0], 2, i[1], i[3]});
    });
    second.store(out, {i[0], i[2], i[1], i[3]}, sum);
  }
  const loop::NestId pv = second.finish();
  const std::vector<loop::Bindings> shapes = {
      {{batch, 1}, {s, 1}}, {{batch, 2}, {s, 17}}, {{batch, 1}, {s, 70}}};
  check({program, qk}, shapes);
  check({program, pv}, shapes);
}

namespace {

size_t prepacked(const Program& program) {
  return static_cast<size_t>(std::count_if(program.buffers.begin(), program.buffers.end(),
                                           [](const loop::Buffer& b) { return b.prepacked; }));
}

}  // namespace

TEST_CASE("weights are packed when the model is compiled, once per weight and layout") {
  for (const auto& [data, dtype, wide] : {std::tuple{DType::kF32, DType::kF32, DType::kF32},
                                          {DType::kF32, DType::kF16, DType::kF32},
                                          {DType::kBF16, DType::kBF16, DType::kF32},
                                          {DType::kU8, DType::kI8, DType::kI32},
                                          {DType::kI8, DType::kI8, DType::kI32},
                                          {DType::kI8, DType::kU8, DType::kI32}}) {
    const DType sums = wide;
    Program program;
    const Expr m = symbol(program, "m", 0, 300);
    program.symbols.back().input = 0, program.symbols.back().dim = 0;
    const View x = buffer(program, "x", {m, 21}, Storage::kInput, data);
    const View y = buffer(program, "y", {m, 33}, Storage::kOutput, sums),
               z = buffer(program, "z", {m, 33}, Storage::kOutput, sums);
    program.inputs = {x.buffer};
    program.outputs = {y.buffer, z.buffer};
    program[x.buffer].ordinal = program[y.buffer].ordinal = 0;
    program[z.buffer].ordinal = 1;
    const View w = weight(program, "w", {33, 21}, dtype);
    for (const View& to : {y, z}) {
      NestBuilder nb(program, "linear");
      const auto i = nb.dims({m, 33});
      const Value sum = nb.reduce(loop::Combine::kSum, {21}, [&](const std::vector<Expr>& k) {
        return nb.cast(nb.load(x, {i[0], k[0]}), sums) * nb.cast(nb.load(w, {i[1], k[0]}), sums);
      });
      nb.store(to, i, unary(loop::ScalarOp::kNeg, sum));
      nb.finish();
    }
    const CpuTarget tiled = test::target_with_tiles();
    for (const CpuTarget* target : {&cpu_target("native"), &cpu_target("x86-64-v3"), &tiled}) {
      Program scheduled = program;
      bool found = false;
      for (loop::Nest& nest : scheduled.nests) {
        kernels::GemmPlan plan;
        found = false;
        for (const auto& ranked : schedule::contraction_plans(scheduled, nest, *target)) {
          if (found || (target == &tiled && !ranked.plan.kernel->tiles)) continue;
          plan = ranked.plan;
          found = true;
        }
        REQUIRE((found || target == &tiled));
        if (!found) break;
        plan.tiles = 2, plan.chunk = 9;  // several blocks and pieces of k: panels are prefetched
        nest.schedule = kernels::to_schedule(plan);
      }
      if (!found) continue;
      schedule::pack_weights(scheduled);
      CHECK(prepacked(scheduled) == 1);
      CHECK(scheduled.prepack.size() == 1);
      for (const loop::Nest& nest : scheduled.nests) {  // both threads get the same amount of work
        if (!kernels::is_gemm(nest.schedule)) continue;
        const codegen::Kernel kernel = codegen::cpu::emit_contraction(scheduled, nest, *target);
        CHECK(sym::evaluate(kernel.tasks, [](Expr) { return std::optional<int64_t>(100); }).value() % 2 == 0);
      }
      codegen::cpu::RunCompiledOptions options{.target = *target};
      if (target == &tiled) options.build.prelude = test::tiles_prelude();
      codegen::cpu::CompiledProgram compiled(scheduled, options);
      for (int64_t rows : {0, 1, 7, 100}) {
        loop::HostTensor input = loop::make_tensor(data, {rows, 21});
        for (int64_t i = 0; i < rows * 21; ++i) loop::set_number(input, i, static_cast<double>(i % 13) - 6);
        const auto expected = loop::interpret(program, {input});
        const auto actual = compiled.run({input});
        for (size_t o = 0; o < 2; ++o) {
          REQUIRE(expected[o].shape == actual[o].shape);
          double worst = 0;
          for (int64_t i = 0; i < rows * 33; ++i) {
            worst =
                std::max(worst, std::abs(loop::get_number(expected[o], i) - loop::get_number(actual[o], i)));
          }
          CHECK(worst < 1e-4);
        }
      }
    }
  }
}

TEST_CASE("threads share the rows of a product on tile registers, unless there are many more columns") {
  const CpuTarget tiled = test::target_with_tiles();
  const auto tasks = [&](int64_t columns, int64_t rows, bool rows_outer, int64_t depth = 64) {
    Program program;
    const Expr m = symbol(program, "m", 1, 300);
    const View x = buffer(program, "x", {m, depth}, Storage::kInput, DType::kBF16),
               y = buffer(program, "y", {m, columns}, Storage::kOutput, DType::kF32);
    const View w = weight(program, "w", {columns, depth}, DType::kBF16);
    NestBuilder nb(program, "linear");
    const auto i = nb.dims({m, columns});
    nb.store(y, i, nb.reduce(loop::Combine::kSum, {depth}, [&](const std::vector<Expr>& k) {
      return nb.cast(nb.load(x, {i[0], k[0]}), DType::kF32) * nb.cast(nb.load(w, {i[1], k[0]}), DType::kF32);
    }));
    const loop::NestId id = nb.finish();
    for (const auto& ranked : schedule::contraction_plans(program, program[id], tiled)) {
      kernels::GemmPlan plan = ranked.plan;
      if (plan.kernel->name != "gemm.bf16.amx.32x32") continue;
      plan.tiles = 64, plan.least_tiles = 0;
      plan.rows_outer = rows_outer;
      program[id].schedule = kernels::to_schedule(plan);
      schedule::pack_weights(program);
      const codegen::Kernel kernel = codegen::cpu::emit_contraction(program, program[id], tiled);
      return sym::evaluate(kernel.tasks, [&](Expr) { return std::optional<int64_t>(rows); }).value();
    }
    return int64_t{0};
  };
  CHECK(tasks(128, 256, true) == 2 * 4);  // two blocks of four panels
  CHECK(tasks(128, 20, true) == 4);       // a single tile has one block
  CHECK(tasks(1024, 100, true) == 32);    // many more columns
  CHECK(tasks(1024, 200, true) == 2 * 32);
  CHECK(tasks(1024, 200, true, tiled.l2_bytes / 2048) == 32);  // panels that do not fit in L2
  CHECK(tasks(128, 256, false) == 4);                          // neighbouring tasks share a panel
}

namespace {

// y[m, n] = -x[m, k] w[k, n], with a constant or symbolic number of rows.
Program product_by_weights(std::optional<int64_t> rows, int64_t depth, int64_t columns) {
  Program program;
  const Expr m = rows ? Expr(*rows) : symbol(program, "m", 0, 400);
  if (!rows) program.symbols.back().input = 0, program.symbols.back().dim = 0;
  const View x = buffer(program, "x", {m, depth}, Storage::kInput);
  const View y = buffer(program, "y", {m, columns}, Storage::kOutput);
  program.inputs = {x.buffer};
  program.outputs = {y.buffer};
  program[x.buffer].ordinal = program[y.buffer].ordinal = 0;
  const View w = weight(program, "w", {depth, columns});
  NestBuilder nb(program, "linear");
  const auto i = nb.dims({m, columns});
  const Value sum = nb.reduce(loop::Combine::kSum, {depth}, [&](const std::vector<Expr>& k) {
    return nb.load(x, {i[0], k[0]}) * nb.load(w, {k[0], i[1]});
  });
  nb.store(y, i, unary(loop::ScalarOp::kNeg, sum));
  nb.finish();
  return program;
}

// Compares the interpreter with the scheduled program, for `rows` rows.
double largest_difference(const Program& program, const Program& scheduled, int64_t rows, int64_t depth) {
  loop::HostTensor input = loop::make_tensor(DType::kF32, {rows, depth});
  for (int64_t i = 0; i < rows * depth; ++i)
    loop::set_number(input, i, static_cast<double>(i % 13) / 8 - 0.75);
  const auto expected = loop::interpret(program, {input});
  const auto actual = codegen::cpu::run_compiled(scheduled, {input});
  REQUIRE(expected[0].shape == actual[0].shape);
  double largest = 0;
  for (int64_t i = 0; i < expected[0].shape[0] * expected[0].shape[1]; ++i)
    largest = std::max(largest, std::abs(loop::get_number(expected[0], i) - loop::get_number(actual[0], i)));
  return largest;
}

}  // namespace

TEST_CASE("a product of many rows by weights is in two bands of rows, which follow each other") {
  constexpr int64_t kDepth = 37, kColumns = 256;
  const CpuTarget& target = cpu_target("native");
  const Program program = product_by_weights({}, kDepth, kColumns);
  kernels::GemmPlan plan = schedule::contraction_plans(program, program.nests[0], target).at(0).plan;
  REQUIRE(plan.b == kernels::GemmPlan::B::kWeights);
  const int64_t panels = kColumns / plan.kernel->columns();
  for (const bool rows_outer : {false, true}) {
    for (const int64_t tiles : {2, 64}) {
      Program scheduled = program;
      plan.rows_outer = rows_outer, plan.tiles = tiles;
      scheduled.nests[0].schedule = kernels::to_schedule(plan);
      schedule::pack_weights(scheduled);
      const loop::Nest& packed =
          *std::find_if(scheduled.nests.begin(), scheduled.nests.end(),
                        [](const loop::Nest& n) { return kernels::is_gemm(n.schedule); });
      const codegen::Kernel kernel = codegen::cpu::emit_contraction(scheduled, packed, target);
      const auto tasks = [&](int64_t rows) {
        return sym::evaluate(kernel.tasks, [&](Expr) { return std::optional<int64_t>(rows); }).value();
      };
      if (panels % 2 == 0)
        CHECK(tasks(63) ==
              (tiles == 64 ? 1 : (63 + 2 * plan.kernel->rows - 1) / (2 * plan.kernel->rows)) * panels);
      for (const int64_t rows : {64, 65, 131, 399}) CHECK(tasks(rows) % (2 * panels) == 0);
      if (tiles == 64) CHECK(tasks(64) == 2 * panels);
      for (const int64_t rows : {0, 1, 63, 64, 65, 131, 399})
        CHECK(largest_difference(program, scheduled, rows, kDepth) < 1e-5);
    }
  }
}

TEST_CASE("a few rows meet far weights in pieces that stay in L1") {
  constexpr int64_t kDepth = 303, kColumns = 450;
  const CpuTarget& target = cpu_target("native");
  const auto product = [](std::optional<int64_t> rows) { return product_by_weights(rows, kDepth, kColumns); };
  const CpuTarget& named = cpu_target("x86-64-v4");
  const auto has_pieces = [&](Program program, std::string_view kernel) {
    loop::Nest& nest = program.nests[0];
    const auto plans = schedule::contraction_plans(program, nest, named);
    const auto ranked = std::find_if(plans.begin(), plans.end(),
                                     [&](const auto& plan) { return plan.plan.kernel->name == kernel; });
    REQUIRE(ranked != plans.end());
    nest.schedule = kernels::to_schedule(ranked->plan);
    schedule::pack_weights(program);
    const auto packed = std::find_if(program.nests.begin(), program.nests.end(),
                                     [](const loop::Nest& n) { return kernels::is_gemm(n.schedule); });
    return codegen::cpu::emit_contraction(program, *packed, named).text.find("pieces") != std::string::npos;
  };
  CHECK(has_pieces(product({}), "gemm.f32.6x64"));
  CHECK(!has_pieces(product({}), "gemm.f32.12x32"));  // its tiles of more rows do not wait for weights
  CHECK(!has_pieces(product(20), "gemm.f32.6x64"));

  const Program program = product({});
  for (const auto& ranked : schedule::contraction_plans(program, program.nests[0], target)) {
    CAPTURE(ranked.plan.kernel->name);
    Program scheduled = program;
    scheduled.nests[0].schedule = kernels::to_schedule(ranked.plan);
    schedule::pack_weights(scheduled);
    for (int64_t rows : {1, 7, 9, 20, 26}) CHECK(largest_difference(program, scheduled, rows, kDepth) < 1e-4);
  }
}

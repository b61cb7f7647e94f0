#include "compiler/kernels/contraction.h"

#include <doctest/doctest.h>

#include "compiler/kernels/gemm_plan.h"
#include "compiler/kernels/window_plan.h"
#include "compiler/loop/build.h"
#include "compiler/sym/text.h"

using namespace stridec;
using loop::Combine;
using loop::NestBuilder;
using loop::Program;
using loop::Storage;
using loop::View;
using sym::Expr;

namespace {

View buffer(Program& program, std::vector<Expr> shape, DType dtype = DType::kF32) {
  return loop::whole(program,
                     loop::add_buffer(program, {.name = "b", .dtype = dtype, .shape = std::move(shape)}));
}

// out[i, j] = `change` applied to the sum over k of x[i, k] * y[k, j].
struct Product {
  Program program;
  loop::NestId nest;
};
Product product(DType dtype, Combine combine, bool twice = false) {
  Product p;
  const View x = buffer(p.program, {8, 9}, dtype), y = buffer(p.program, {9, 10}, dtype),
             out = buffer(p.program, {8, 10});
  NestBuilder nb(p.program, "product");
  const auto i = nb.dims({8, 10});
  auto sum = [&] {
    return nb.reduce(combine, {9}, [&](const std::vector<Expr>& k) {
      return nb.cast(nb.load(x, {i[0], k[0]}), DType::kF32) * nb.cast(nb.load(y, {k[0], i[1]}), DType::kF32);
    });
  };
  nb.store(out, i, twice ? sum() + sum() : sum());
  p.nest = nb.finish();
  return p;
}

}  // namespace

TEST_CASE("a sum of products is a contraction, with the dims of each factor") {
  const Product p = product(DType::kF32, Combine::kSum);
  const loop::Nest& nest = p.program[p.nest];
  const auto c = kernels::match_contraction(nest);
  REQUIRE(c.has_value());
  CHECK(c->factors[0].load != nullptr);
  CHECK(c->factors[0].vars.contains(nest.dims[0].var));
  CHECK_FALSE(c->factors[0].vars.contains(nest.dims[1].var));
  CHECK(c->factors[1].vars.contains(nest.dims[1].var));
}

TEST_CASE("rows or columns tell which factor is vectorised, whichever is written first") {
  const Product p = product(DType::kF32, Combine::kSum);
  const loop::Nest& nest = p.program[p.nest];
  auto c = kernels::match_contraction(nest);
  REQUIRE(c.has_value());
  const Expr row = nest.dims[0].var, column = nest.dims[1].var, group = sym::var("%g");
  for (kernels::Factor& factor : c->factors) factor.vars.insert(group);
  for (const size_t side : {1, 0}) {
    CAPTURE(side);
    CHECK(kernels::side_of_columns(*c, {row}, {column}) == side);
    CHECK(kernels::side_of_columns(*c, {}, {column}) == side);
    CHECK(kernels::side_of_columns(*c, {row}, {}) == side);
    CHECK(kernels::side_of_columns(*c, {row}, {group}) == side);
    CHECK(kernels::side_of_columns(*c, {row}, {group, column}) == side);
    CHECK(kernels::side_of_columns(*c, {}, {group}) == 1);
    std::swap(c->factors[0], c->factors[1]);
  }
}

TEST_CASE("converted factors match, but are not plain loads") {
  const Product p = product(DType::kI8, Combine::kSum);
  const auto c = kernels::match_contraction(p.program[p.nest]);
  REQUIRE(c.has_value());
  CHECK(c->factors[0].load == nullptr);
  CHECK(c->factors[0].slice.size() == 2);
}

TEST_CASE("other reductions, and two at once, are not contractions") {
  const Product largest = product(DType::kF32, Combine::kMax),
                two = product(DType::kF32, Combine::kSum, true);
  CHECK_FALSE(kernels::match_contraction(largest.program[largest.nest]).has_value());
  CHECK_FALSE(kernels::match_contraction(two.program[two.nest]).has_value());
}

TEST_CASE("dims that continue each other run as one") {
  const Expr i = sym::var("%i"), j = sym::var("%j"), n = sym::var("n");
  const std::vector<loop::Dim> dims = {{i, 7}, {j, n}};
  sym::Facts facts;
  CHECK(kernels::merged_step(i * n * 4 + j * 4 + 3, dims, facts) == Expr(4));
  CHECK_FALSE(kernels::merged_step(i * n * 4 + j * 2, dims, facts).has_value());
  CHECK_FALSE(kernels::merged_step(i * j, dims, facts).has_value());
  CHECK(kernels::merged_step(n, dims, facts) == Expr(0));
}

TEST_CASE("plans survive their text form") {
  kernels::GemmPlan plan;
  plan.kernel = kernels::find_gemm_kernel("gemm.f32.8x48");
  REQUIRE(plan.kernel);
  plan.batch = {sym::var("%g")};
  plan.rows = {sym::var("%y"), sym::var("%x")};
  plan.columns = {sym::var("%c")};
  plan.segments = {sym::var("%r"), sym::var("%s")};
  plan.run = {sym::var("%k")};
  plan.b = kernels::GemmPlan::B::kWeights;
  plan.panel = 48;
  plan.tiles = 16;
  const std::string text = loop::to_string(kernels::to_schedule(plan));
  CHECK(text ==
        "gemm.f32.8x48: batch %g; rows %y %x; columns %c; segments %r %s; run %k; a direct; b weights 48; "
        "tiles 16; "
        "order rows");
  CHECK(loop::to_string(kernels::to_schedule(kernels::to_plan(loop::parse_schedule(text)))) == text);

  plan.least_tiles = 4;
  const std::string split = loop::to_string(kernels::to_schedule(plan));
  CHECK(split.find("tiles 16 4;") != std::string::npos);
  CHECK(loop::to_string(kernels::to_schedule(kernels::to_plan(loop::parse_schedule(split)))) == split);

  const std::string bytes_of_rows =
      "gemm.f32.6x64: rows %m; columns %n; run %k; a direct; b compact 64; bytes 32; tiles 4; order rows";
  CHECK(loop::to_string(kernels::to_schedule(kernels::to_plan(loop::parse_schedule(bytes_of_rows)))) ==
        bytes_of_rows);

  const std::string window =
      "window.f32.7: rows %n %y; along %x; columns %c; taps %r %s; b weights 16; vectors 4";
  CHECK(loop::to_string(kernels::to_schedule(kernels::to_window_plan(loop::parse_schedule(window)))) ==
        window);
  CHECK(kernels::panels_of(loop::parse_schedule(window))->panel == 16);
  const std::string groups =
      "window.f32.7: rows %n %y; along %x; columns %g %c; channel %k; taps %r %s; b weights 15; lanes 16; "
      "vectors 4";
  CHECK(loop::to_string(kernels::to_schedule(kernels::to_window_plan(loop::parse_schedule(groups)))) ==
        groups);
  CHECK(kernels::panels_of(loop::parse_schedule(groups))->width == 16);
  const std::string bytes =
      "window.u8s8.7: rows %n %y; along %x; columns %c; taps %s; beside %r; b weights 16; vectors 4";
  CHECK(loop::to_string(kernels::to_schedule(kernels::to_window_plan(loop::parse_schedule(bytes)))) == bytes);
  CHECK(kernels::panels_of(loop::parse_schedule(bytes))->group == 4);
}

TEST_CASE("register tiles fit the registers and hide the latency of multiply-adds") {
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    CAPTURE(kernel.name);
    CHECK(kernels::find_gemm_kernel(kernel.name) == &kernel);
    if (kernel.tiles) continue;
    const int registers = kernel.vector_bytes == 64 ? 32 : 16;
    const bool adds = kernel.a == DType::kI16 || kernel.vector_bytes == 16;  // no fused multiply-add
    const int product = kernel.pairs ? 2 : adds ? 1 : 0;                     // and a vector of ones
    const int kept = kernel.deep ? std::min(kernel.rows, kernel.vectors) : kernel.vectors;
    CHECK(kernel.rows * kernel.vectors + kept + 1 + product <= registers);
    CHECK(kernel.rows * kernel.vectors >= 8);
  }
}

TEST_CASE("tile registers hold the sums, the rows and a part of the columns") {
  int found = 0;
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    if (!kernel.tiles) continue;
    CAPTURE(kernel.name);
    const int rows = kernel.rows / kernels::kTileRows;
    CHECK(kernel.rows % kernels::kTileRows == 0);
    CHECK(rows * kernel.vectors + rows + 1 <= 8);
    CHECK(kernel.step() * byte_size(kernel.a) == kernels::kTileBytes);
    CHECK(kernel.runs_on(cpu_target("sapphirerapids")));
    CHECK_FALSE(kernel.runs_on(cpu_target("icelake-server")));
    ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("every instruction set has tiles of each dtype") {
  for (const CpuTarget& target : cpu_targets()) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      int found = 0;
      for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
        found += kernel.dtype == dtype && kernel.runs_on(target);
      }
      CHECK(found >= 2);
    }
  }
}

TEST_CASE("rows of few tasks are split further") {
  kernels::GemmPlan plan;
  plan.kernel = kernels::find_gemm_kernel("gemm.f32.6x64");
  REQUIRE(plan.kernel);
  plan.tiles = 48;
  const CpuTarget target{};
  const auto blocks = [&](int64_t rows, int64_t columns) {
    return sym::as_const(kernels::split_rows(plan, 1, rows, columns, 64, target).blocks).value();
  };
  CHECK(blocks(600, 128) == 3);  // of 100 tiles
  plan.least_tiles = 6;
  CHECK(blocks(600, 128) == 16);  // as many as have 6 tiles
  CHECK(blocks(600, 1024) == 4);  // 64 tasks
  CHECK(blocks(60000, 1024) == 209);
  CHECK(blocks(30, 128) == 1);
  CHECK(blocks(0, 128) == 0);
  CHECK(blocks(600, 0) == 16);
}

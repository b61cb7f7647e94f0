// GEMM tiles with mma.sync, wgmma and FMAs, emulated and compared with the interpreter: every pair of types,
// layouts, epilogues and odd sizes, with every variant that the sizes allow.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <map>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"
#include "tests/support/emulate.h"
#include "tests/support/matrix_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sample.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;
using Sizes = std::map<std::string, int64_t>;

// Values that every operand type can represent.
HostTensor drawn(const loop::Program& program, loop::BufferId id, const Sizes& sizes, int seed) {
  const loop::Buffer& buffer = program[id];
  const auto shape = test::shape_of(buffer, [&](const std::string& symbol) { return sizes.at(symbol); });
  return test::drawn_tensor(buffer.dtype, shape, seed, [&](double unit) {
    const double whole = std::floor(256 * unit) - (is_signed(buffer.dtype) ? 128 : 0);
    return is_float(buffer.dtype) ? 4 * unit - 2 : whole;
  });
}

double tolerance(DType dtype) {
  if (!is_float(dtype)) return 0;
  return dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 2e-5 : dtype == DType::kF16 ? 4e-3 : 3e-2;
}

// Checks the named tile with the program's sizes constant and symbolic, with every variant.
void check(const test::MatrixCase& c, const std::string& kernel, const Sizes& sizes,
           const std::string& target = "sm_89", int64_t split = 1) {
  INFO(c.name, " by ", kernel);
  loop::Program program = loop::parse_program(c.text);
  loop::verify(program);
  std::vector<loop::Schedule> schedules;
  for (const auto& ranked : schedule::matrix_plans(program, program.nests[0], gpu_target(target)))
    if (ranked.plan.kernel->name == kernel && ranked.plan.split == split)
      schedules.push_back(kernels::to_schedule(ranked.plan));
  REQUIRE(!schedules.empty());
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i)
    inputs.push_back(drawn(program, program.inputs[i], sizes, i));
  const HostTensor want = loop::interpret(program, inputs)[0];
  double largest = 1;
  for (int64_t i = 0; i < loop::element_count(want); ++i)
    largest = std::max(largest, std::abs(loop::get_number(want, i)));
  for (const loop::Schedule& schedule : schedules) {
    program.nests[0].schedule = schedule;
    if (!test::in_sample(loop::to_string(program), 2)) continue;
    size_t choices = 1;
    for (size_t choice = 0; choice < choices; ++choice) {
      const auto got = test::emulate(program, inputs, gpu_target(target), choice, &choices);
      REQUIRE(got.has_value());
      double error = 0;
      for (int64_t i = 0; i < loop::element_count(want); ++i) {
        const double off = std::abs(loop::get_number((*got)[0], i) - loop::get_number(want, i));
        error = std::max(error, std::isnan(off) ? HUGE_VAL : off);
      }
      INFO("choice ", choice, " of ", choices);
      CHECK(error <= tolerance(want.dtype) * largest);
    }
  }
}

TEST_CASE("every pair of types that tensor cores multiply, over odd sizes and whole ones") {
  for (const char* dtype : {"f16", "bf16", "tf32", "u8", "i8", "u8*i8", "i8*u8", "f8e4m3fn", "f8e5m2",
                            "f8e4m3fn*f8e5m2", "f8e5m2*f8e4m3fn"}) {
    const std::string a = test::Types(dtype).a;
    const std::string kernel = a == "tf32"                 ? "mma.32x64x32.32bit"
                               : a[0] == 'b' || a == "f16" ? "mma.32x64x64"
                                                           : "mma.32x64x128.8bit";
    const auto c = test::matmul_case(dtype, "m", "n", "k", true, "", test::Behind::kGelu);
    check(c, kernel, {{"m", 5}, {"n", 13}, {"k", 7}});
    check(c, kernel, {{"m", 37}, {"n", 72}, {"k", 144}});
  }
}

TEST_CASE("factors along the rows, requantised sums, convolutions, wide tiles") {
  const Sizes sizes = {{"m", 19}, {"n", 72}, {"k", 80}};
  for (const char* dtype : {"f16", "tf32", "u8*i8", "f8e4m3fn"}) {
    const bool half = dtype[1] == '1', wide = dtype[0] == 't';
    check(test::matmul_case(dtype, "m", "n", "k", false, "", test::Behind::kNothing),
          half   ? "mma.64x64x64"
          : wide ? "mma.64x64x16.32bit"
                 : "mma.64x64x32.8bit",
          sizes);
    const std::string tile = half ? "mma.64x64x64" : wide ? "mma.64x64x32.32bit" : "mma.64x64x128.8bit";
    for (const test::Conv& c : test::convolutions())
      if (c.name == "conv3x3s2" || c.name == "conv_stem" || c.name == "conv3x3d2")
        check(test::convolution_case(dtype, c), test::tile_of(tile, dtype, c), {});
  }
  check(test::matmul_case("u8*i8", "m", "n", "k", true, "", test::Behind::kQuantized), "mma.32x64x128.8bit",
        sizes);
  check(test::matmul_case("tf32", "m", "n", "k", true, "", test::Behind::kNothing), "mma.128x64x32.32bit",
        sizes);
}

TEST_CASE("multiply-adds of factors that are contiguous along the depth, along the rows, or neither") {
  const Sizes odd = {{"m", 19}, {"n", 71}, {"k", 37}}, whole = {{"m", 84}, {"n", 136}, {"k", 80}};
  for (const bool transposed : {false, true}) {
    for (const Sizes& sizes : {odd, whole}) {
      check(test::matmul_case("f32", "m", "n", "k", transposed, "", test::Behind::kNothing), "simt.64x64x16",
            sizes);
      check(test::matmul_case("f64", "m", "n", "k", transposed, "", test::Behind::kNothing), "simt.64x64x16d",
            sizes);
    }
    check(test::matmul_case("f32", "m", "n", "k", transposed, "", test::Behind::kNothing), "simt.128x128x16",
          whole);
  }
  check(test::matmul_case("f32", "m", "n", "k", false), "simt.128x64x16", whole);
  for (const test::Conv& c : test::convolutions())
    if (c.name == "conv3x3s2" || c.name == "conv_stem" || c.name == "conv3x3_inner")
      check(test::convolution_case("f32", c), "simt.64x64x16", {});
}

TEST_CASE("tiles of few rows, whose warps share the depth: by copies of threads and by the engine") {
  const Sizes odd = {{"m", 3}, {"n", 71}, {"k", 37}}, whole = {{"m", 11}, {"n", 136}, {"k", 144}};
  for (const char* target : {"sm_80", "sm_90a"})
    for (const bool transposed : {false, true})
      for (const Sizes& sizes : {odd, whole}) {
        for (const char* kernel : {"sliced.8x32x32", "sliced.16x32x32", "sliced.16x64x32"})
          check(test::matmul_case("f32", "m", "n", "k", transposed), kernel, sizes, target);
        check(test::matmul_case("f64", "m", "n", "k", transposed), "sliced.8x64x16d", sizes, target);
      }
  check(test::matmul_case("f32", "m", "n", "k", false, "2"), "sliced.16x64x32", whole, "sm_90a");
  // Few result columns: they become the rows of the tiles.
  test::MatrixCase turned = test::matmul_case("f32", "m", "n", "k", true, "", test::Behind::kNothing);
  for (const auto& [from, to] : {std::pair{"y f32 [m, n]", "y f32 [n, m]"}, {"y[%m, %n]", "y[%n, %m]"}})
    turned.text.replace(turned.text.find(from), std::string_view(from).size(), to);
  check(turned, "sliced.8x32x32", odd);
  check(turned, "sliced.16x64x32", whole, "sm_90a");
  // Left operand stored with contiguous columns.
  test::MatrixCase columns = test::matmul_case("f32", "m", "n", "k", true, "", test::Behind::kNothing);
  for (const auto& [from, to] : {std::pair{"x f32 [m, k]", "x f32 [k, m]"},
                                 {"x[%m, %k]", "x[%k, %m]"},
                                 {"symbol m = input 0 dim 0", "symbol m = input 0 dim 1"},
                                 {"symbol k = input 0 dim 1", "symbol k = input 0 dim 0"}})
    columns.text.replace(columns.text.find(from), std::string_view(from).size(), to);
  check(columns, "sliced.8x32x32", whole);
  check(columns, "sliced.16x64x32", {{"m", 12}, {"n", 136}, {"k", 144}}, "sm_90a");
}

TEST_CASE(
    "blocks that share the depth of a tile without a cluster: the last to come adds up what they left") {
  const Sizes sizes = {{"m", 37}, {"n", 136}, {"k", 1040}}, few = {{"m", 5}, {"n", 136}, {"k", 1040}};
  for (const int64_t split : {2, 4, 8}) {
    check(test::matmul_case("f32", "m", "n", "k", true), "sliced.8x32x32", few, "sm_80", split);
    check(test::matmul_case("f32", "m", "n", "k", false), "sliced.16x64x32", sizes, "sm_120a", split);
    check(test::matmul_case("f64", "m", "n", "k", true), "sliced.8x64x16d", few, "sm_90a", split);
  }
  check(test::matmul_case("f32", "m", "n", "k", false), "simt.32x64x16", sizes, "sm_89", 4);
  check(test::matmul_case("f64", "m", "n", "k", false), "simt.64x64x16d", sizes, "sm_89", 2);
  check(test::matmul_case("f16", "m", "n", "k", true), "mma.32x64x64", sizes, "sm_86", 4);
  check(test::matmul_case("u8*i8", "m", "n", "k", true), "mma.64x64x128.8bit", sizes, "ptx", 2);
  check(test::matmul_case("f16", "m", "n", "k", true, "3"), "mma.64x64x64", few, "sm_80", 2);
}

TEST_CASE("warp groups: what the engine copies, what threads gather, and what is cut at the end of a line") {
  const Sizes odd = {{"m", 19}, {"n", 71}, {"k", 37}}, whole = {{"m", 72}, {"n", 80}, {"k", 176}};
  for (const char* dtype : {"f16", "tf32", "i8*u8", "f8e5m2*f8e4m3fn"}) {
    const char first = dtype[0];
    const std::string kernel = first == 't'                      ? "wgmma.64x64x32.32bit"
                               : first == 'f' && dtype[1] == '1' ? "wgmma.64x64x64"
                                                                 : "wgmma.64x64x128.8bit";
    const auto c = test::matmul_case(dtype, "m", "n", "k", true, "", test::Behind::kGelu);
    check(c, kernel, odd, "sm_90a");
    check(c, kernel, whole, "sm_90a");
  }
  // Right operand contiguous along its columns; two alternating groups; three groups; tiles of other batch
  // points.
  check(test::matmul_case("bf16", "m", "n", "k", false), "wgmma.64x128x64", whole, "sm_90a");
  check(test::matmul_case("f16", "m", "n", "k", false), "wgmma.128x128x64.turns",
        {{"m", 264}, {"n", 136}, {"k", 200}}, "sm_90a");
  check(test::matmul_case("f16", "m", "n", "k", true, "3"), "wgmma.192x128x64", whole, "sm_90a");
  // Few registers are left besides the accumulators: the epilogue processes 32 columns at a time, or row by
  // row.
  for (const test::Behind behind : {test::Behind::kNothing, test::Behind::kGelu})
    check(test::matmul_case("bf16", "m", "200", "k", true, "", behind), "wgmma.128x192x64",
          {{"m", 72}, {"k", 64}}, "sm_90a");
}

TEST_CASE(
    "sums of a step of fp8 are added to the others while the next step's products are made, in any number of "
    "steps") {
  for (const int depth : {16, 128, 208, 272, 528})
    for (const char* kernel : {"wgmma.128x128x128.8bit", "wgmma.64x128x128.deep.8bit"})
      check(test::matmul_case("f8e5m2*f8e4m3fn", "m", "n", "k", true, "", test::Behind::kNothing), kernel,
            {{"m", 72}, {"n", 136}, {"k", depth}}, "sm_90a");
  // One value at a time if registers are scarce or threads gather.
  check(test::matmul_case("f8e4m3fn", "m", "n", "k", true), "wgmma.64x64x128.8bit",
        {{"m", 72}, {"n", 72}, {"k", 272}}, "sm_90a");
  check(test::matmul_case("f8e4m3fn", "72", "72", "1040", true), "wgmma.64x64x128.deep.8bit", {}, "sm_90a",
        2);
}

TEST_CASE(
    "pairs of products, whose sums meet in registers, in shared memory, along the rows, and in parts of a "
    "cluster") {
  const Sizes sizes = {{"m", 72}, {"k", 176}}, odd = {{"m", 19}, {"k", 37}};
  for (const bool transposed : {false, true}) {
    check(test::paired_case("bf16", "m", "72", "k", transposed, false), "wgmma.64x64x64", sizes, "sm_90a");
    check(test::paired_case("f16", "m", "72", "k", transposed, true), "wgmma.64x64x64", sizes, "sm_90a");
    check(test::paired_case("f16", "m", "72", "k", transposed, false), "mma.64x64x64", odd);
  }
  check(test::paired_case("f16", "m", "200", "k", true, false), "wgmma.128x256x64", sizes, "sm_90a");
  check(test::paired_case("bf16", "m", "136", "k", true, false), "wgmma.128x128x64.turns",
        {{"m", 264}, {"k", 200}}, "sm_90a");
  check(test::paired_case("f16", "m", "200", "k", true, false), "wgmma.192x192x64", sizes, "sm_90a");
  check(test::paired_case("f16", "70", "40", "528", true, true), "wgmma.64x64x64", {}, "sm_90a", 2);
  // Weights as tile rows.
  check(test::paired_case("f16", "m", "72", "k", true, false), "wgmma.64x32x64", sizes, "sm_90a");
  check(test::paired_case("bf16", "13", "72", "1040", true, true), "wgmma.64x16x64", {}, "sm_90a", 4);
  check(test::paired_case("tf32", "m", "40", "k", true, false), "wgmma.64x64x32.32bit", sizes, "sm_90a");
  check(test::paired_case("i8", "m", "40", "k", true, false), "wgmma.64x64x128.8bit", {{"m", 40}, {"k", 160}},
        "sm_90a");
  check(test::paired_case("f32", "m", "40", "k", true, true), "simt.64x64x16", odd);
}

TEST_CASE("windows that the engine copies") {
  for (const test::Conv& c : test::convolutions())
    if (c.name == "conv3x3" || c.name == "conv3x3s2_wide" || c.name == "conv3x3d2_wide")
      check(test::convolution_case("f16", c), "wgmma.64x64x64", {{"n", 2}}, "sm_90a");
}

// A contraction of x and w: their shapes, the nest's dims, the sum's, and both loads.
test::MatrixCase windows_case(const std::string& name, const std::string& x, const std::string& w,
                              const std::string& y, const std::string& dims, const std::string& sum,
                              const std::string& load_x, const std::string& load_w,
                              const std::string& store) {
  return {
      name,
      cat("program p\n  input x f16 [", x, "] ordinal 0\n  input w f16 [", w, "] ordinal 1\n  output y f32 [",
          y, "] ordinal 0\n  inputs (x, w)\n  outputs (y)\n  steps\n", "    nest 0 conv (", dims,
          ")\n      %0 : f32 = reduce sum (", sum, ")\n        %1 : f16 = load x[", load_x,
          " else 0\n        %2 : f32 = cast %1\n        %3 : f16 = load w[", load_w,
          "]\n        %4 : f32 = cast %3\n        %5 : f32 = mul %2 %4\n        yield %5\n      store y[",
          store, "] %0\n")};
}

TEST_CASE("windows of merged rows, of gradients, read backwards, and along the rows of a tile") {
  const std::string outer = "%b<3, %o<72, %y<5, %x<9", mask = "] if 0 <= %x + %s - 1 && %x + %s - 1 < 9";
  const auto rows = [&](const std::string& taps, const std::string& load) {
    return windows_case(cat("rows ", load), "3, 5, 9, 64", "72, 4, 64", "3, 5, 9, 72", outer,
                        cat("%s<", taps, ", %c<64"), cat("%b, %y, ", load), "%o, %s, %c", "%b, %y, %x, %o");
  };
  // The dims of images and of their rows are merged.
  check(rows("3", cat("%x + %s - 1, %c", mask)), "wgmma.64x64x64", {}, "sm_90a");
  check(rows("3", "%x - %s + 1, %c] if 0 <= %x - %s + 1 && %x - %s + 1 < 9"), "wgmma.64x64x64", {}, "sm_90a");
  check(rows("2", "%x - %s + 1, %c] if %x - %s + 1 < 9"), "wgmma.64x64x64", {}, "sm_90a");
  const auto planes = [&](const std::string& taps, const std::string& at, const std::string& mask) {
    return windows_case(cat("planes ", at), "3, 5, 9, 64", "72, 9, 64", "3, 5, 9, 72", outer,
                        cat("%r<", taps, ", %s<", taps, ", %c<64"), cat("%b, ", at, ", %c] if ", mask),
                        "%o, 3*%r + %s, %c", "%b, %y, %x, %o");
  };
  check(planes("3", "%y - %r + 1, %x - %s + 1",
               "0 <= %y - %r + 1 && %y - %r + 1 < 5 && 0 <= %x - %s + 1 && %x - %s + 1 < 9"),
        "wgmma.64x64x64", {}, "sm_90a");
  for (const char* kernel : {"wgmma.64x64x64", "wgmma.128x128x64.turns"})
    check(planes("2", "%y - %r + 1, %x - %s + 1", "%y - %r + 1 < 5 && %x - %s + 1 < 9"), kernel, {},
          "sm_90a");
  // The gradients of weights: positions are the depth, in one sum or in one for each image.
  const auto weights = [&](const std::string& image, const std::string& batch, const std::string& sum,
                           const std::string& step, const std::string& mask) {
    return windows_case(cat("weights ", image, batch, step), cat("3, ", image, ", 64"), cat("3, 8, 8, 72"),
                        cat(batch.empty() ? "1" : "3", ", 72, 3, 3, 64"),
                        cat(batch, "%o<72, %r<3, %s<3, %c<64"), cat(sum, "%y<8, %x<8"),
                        cat("%b, ", step, "*%y + %r - 1, ", step, "*%x + %s - 1, %c] if ", mask),
                        "%b, %y, %x, %o", cat(batch.empty() ? "0" : "%b", ", %o, %r, %s, %c"));
  };
  const std::string inside = "1 <= %y + %r && %y + %r <= 8 && 1 <= %x + %s && %x + %s <= 8",
                    inside_of_two = "1 <= 2*%y + %r && 2*%y + %r <= 16 && 1 <= 2*%x + %s && 2*%x + %s <= 16";
  for (const char* kernel : {"wgmma.64x64x64", "wgmma.128x128x64", "wgmma.192x128x64"}) {
    check(weights("8, 8", "", "%b<3, ", "1", inside), kernel, {}, "sm_90a");
    check(weights("16, 16", "", "%b<3, ", "2", inside_of_two), kernel, {}, "sm_90a");
  }
  for (const char* kernel : {"wgmma.64x64x64", "wgmma.128x128x64"})
    check(weights("8, 8", "%b<3, ", "", "1", inside), kernel, {}, "sm_90a");
}

// An epilogue input that is masked except at the border: pieces of a table's rows.
TEST_CASE("loads after a sum that masks skip for whole rows") {
  test::MatrixCase c = test::convolution_case("u8*i8", test::convolutions()[0]);
  c.name += "_border";
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"  output y", "  input t i32 [2, 3, 72] ordinal 2\n  output y"},
        {"inputs (x, w)", "inputs (x, w, t)"},
        {"      store y",
         "      %30 : i32 = load t[max(1 - %y, 0), max(%x - 12, 0), %o] if %y <= 0 || 13 <= %x else 0\n"
         "      %31 : i32 = add %7 %30\n      store y"},
        {"] %7\n", "] %31\n"}})
    c.text = replaced(c.text, from, to);
  check(c, "mma.64x64x128.8bit", {{"n", 2}}, "sm_89");
  check(c, "wgmma.64x64x128.8bit", {{"n", 2}}, "sm_90a");
  check(c, "wgmma.128x128x128.turns.8bit", {{"n", 2}}, "sm_90a");
}

// Sums over blocks of rows are added up in place: lines of 16 bytes, if the number of columns allows.
TEST_CASE("sums that are added to those in memory") {
  for (const char* columns : {"72", "n"})
    for (const char* dtype : {"tf32", "f8e4m3fn"}) {
      test::MatrixCase c = test::matmul_case(dtype, "m", columns, "k", true, "", test::Behind::kNothing);
      c.name += "_in_place";
      for (const auto& [from, to] :
           {std::pair<std::string, std::string>{"      store y[%m, %n] %0\n",
                                                "      %6 : f32 = load y[%m, %n]\n"
                                                "      %7 : f32 = add %6 %0\n      store y[%m, %n] %7\n"},
            {"  output y", cat("  input t f32 [m, ", columns, "] ordinal 2\n  output y")},
            {"inputs (x, w)", "inputs (x, w, t)"},
            {"  steps\n", cat("  steps\n    nest 1 start (%m<m, %n<", columns,
                              ")\n      %0 : f32 = load t[%m, %n]\n      store y[%m, %n] %0\n")}})
        c.text = replaced(c.text, from, to);
      const Sizes sizes = {{"m", 37}, {"n", 71}, {"k", 144}};
      const bool wide = dtype[0] == 't';
      check(c, wide ? "mma.64x64x32.32bit" : "mma.64x64x128.8bit", sizes);
      for (const char* tile : wide ? std::array{"wgmma.64x64x32.32bit", "wgmma.128x128x32.turns.32bit"}
                                   : std::array{"wgmma.64x64x128.8bit", "wgmma.128x128x128.8bit"})
        check(c, tile, sizes, "sm_90a");
    }
}

TEST_CASE("blocks of a cluster that split the depth, and tiles of threads that the engine fills") {
  const Sizes sizes = {{"m", 84}, {"n", 72}, {"k", 272}};
  check(test::matmul_case("f16", "84", "72", "528", true), "wgmma.64x64x64", {}, "sm_90a", 2);
  check(test::matmul_case("bf16", "70", "33", "1040", true), "wgmma.64x16x64", {}, "sm_90a", 4);
  // The accumulators are stored where the ring buffer was.
  check(test::matmul_case("f16", "84", "200", "528", true), "wgmma.64x96x64", {}, "sm_90a", 2);
  check(test::matmul_case("f16", "84", "72", "528", false), "mma.64x64x64", {}, "sm_90a", 2);
  for (const bool transposed : {false, true}) {
    check(test::matmul_case("f32", "84", "72", "272", transposed), "simt.64x128x16", {}, "sm_90a", 4);
    check(test::matmul_case("f32", "m", "n", "k", transposed), "simt.32x64x16", sizes, "sm_90a");
  }
}

}  // namespace
}  // namespace stridec::codegen::cuda

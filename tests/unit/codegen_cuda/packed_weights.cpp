// GEMMs with packed low-bit weights: emulated, compared with the interpreter, and built by NVRTC.
#include "compiler/kernels/packed_weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/constants.h"
#include "compiler/schedule/fusion/pack_low_bit_weights.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/support/built_kernel.h"
#include "tests/support/emulate.h"
#include "tests/support/random_weights.h"
#include "tests/support/sample.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;
using test::random_tensor;
using test::weight_data;

constexpr const char *kWarps = "sm_89", *kWarpGroups = "sm_90a";  // which instructions multiply

struct Case {
  std::string rows = "3";  // a number or the symbol "m"
  int64_t k = 128, n = 64;
  int bits = 4;
  int64_t step = 32;        // block size of scales and zero points
  std::string zero = "u8";  // "": 2^(bits - 1)
  std::string x = "f16", scale = "f32";
  bool ahead = false;  // the dequantised weights are written by a nest of their own, in x's type
};

std::string text_of(const Case& c) {
  const int64_t blocks = (c.k + c.step - 1) / c.step;
  const std::string at = cat("[%n, %k//", c.step, "]");
  std::string factor = cat("        %3 : u8 = load w[%n, %k]\n        %4 : u8 = constant ", (1 << c.bits) - 1,
                           "\n        %5 : u8 = bitand %3 %4\n        %6 : f32 = cast_sat %5\n");
  if (c.zero.empty())
    factor += cat("        %9 : f32 = constant ", 1 << (c.bits - 1), "\n");
  else
    factor += cat("        %7 : u8 = load z", at,
                  "\n        %8 : u8 = bitand %7 %4\n        %9 : f32 = cast_sat %8\n");
  factor += "        %10 : f32 = sub %6 %9\n";
  factor += cat("        %11 : ", c.scale, " = load s", at, "\n");
  if (c.scale != "f32") factor += "        %16 : f32 = cast %11\n";
  factor += cat("        %12 : f32 = mul %10 ", c.scale == "f32" ? "%11" : "%16", "\n");
  const bool wide = c.x == "f32";
  if (!wide) factor += cat("        %13 : ", c.x, " = cast %12\n");
  std::string out = "program p\n";
  if (c.rows == "m") out += "  symbol m = input 0 dim 0 in 0..\n";
  out += cat("  input x ", c.x, " [", c.rows, ", ", c.k, "] ordinal 0\n  input bias f32 [", c.n,
             "] ordinal 1\n");
  const auto weight = [&](const char* name, const std::string& type, int64_t columns, int bytes) {
    out += cat("  weight ", name, " ", type, " [", c.n, ", ", columns, "] bytes ", c.n * columns * bytes,
               " hash 0000000000000000\n");
  };
  weight("w", "u8", c.k, 1);
  weight("s", c.scale, blocks, c.scale == "f32" ? 4 : 2);
  if (!c.zero.empty()) weight("z", c.zero, blocks, 1);
  if (c.ahead) out += cat("  arena t ", c.x, " [", c.n, ", ", c.k, "]\n");
  out +=
      cat("  output y f32 [", c.rows, ", ", c.n, "] ordinal 0\n  inputs (x, bias)\n  outputs (y)\n  steps\n");
  if (c.ahead) {
    for (size_t line = 0; line < factor.size(); line = factor.find('\n', line) + 1) factor.erase(line, 2);
    out += cat("    nest 0 dequantise (%n<", c.n, ", %k<", c.k, ")\n", factor, "      store t[%n, %k] ",
               wide ? "%12" : "%13", "\n");
    factor = cat("        ", wide ? "%12 : f32" : cat("%13 : ", c.x), " = load t[%n, %k]\n");
  }
  out += cat("    nest ", c.ahead ? 1 : 0, " product (%m<", c.rows, ", %n<", c.n,
             ")\n      %0 : f32 = reduce sum (%k<", c.k, ")\n        %1 : ", c.x, " = load x[%m, %k]\n");
  if (!wide) out += "        %2 : f32 = cast %1\n";
  out += factor;
  if (!wide) out += "        %14 : f32 = cast %13\n";
  out += cat("        %15 : f32 = mul ", wide ? "%1 %12" : "%2 %14",
             "\n        yield %15\n      %17 : f32 = load bias[%n]\n      %18 : f32 = add %0 %17\n      "
             "store y[%m, %n] %18\n");
  return out;
}

loop::Program program_of(const Case& c) {
  loop::Program program = loop::parse_program(text_of(c));
  int seed = 0;
  for (loop::Buffer& buffer : program.buffers) {
    if (buffer.storage != loop::Storage::kParameter) continue;
    const double scale = 2 / std::sqrt(static_cast<double>(c.k)) / (1 << c.bits);
    buffer.weight = weight_data(
        random_tensor(buffer.dtype, {buffer.shape[0].value(), buffer.shape[1].value()}, ++seed, scale, 256)
            .bytes);
  }
  loop::verify(program);
  return program;
}

// The program after the GPU's passes.
loop::Program packed(const Case& c, const char* target = kWarps) {
  loop::Program program = program_of(c);
  schedule::hoist_constants(program);
  schedule::pack_low_bit_weights(program, gpu_target(target));
  loop::eliminate_dead_code(program);
  loop::verify(program);
  schedule::choose_gpu(program, gpu_target(target));
  return program;
}

int words_products(const loop::Program& program) {
  int count = 0;
  for (const loop::Nest& nest : program.nests) count += nest.schedule.kernel == kernels::kPackedProduct;
  return count;
}

// Compares the packed program and its kernels with the original program. Of kernels with warp groups only the
// last one, which uses warps, is emulated.
void check(const Case& c, int64_t rows, const char* target = kWarps) {
  INFO(text_of(c), "rows ", rows);
  loop::Program given = program_of(c);
  if (!test::in_sample(cat(text_of(c), rows, target), 2)) return;
  const DType x = given[given.inputs[0]].dtype;
  const std::vector<HostTensor> inputs = {random_tensor(x, {rows, c.k}, 77, 1),
                                          random_tensor(DType::kF32, {c.n}, 78, 1)};
  const std::vector<HostTensor> want = loop::interpret(given, inputs, {.poison = true});
  loop::Program ready = packed(c, target);
  CHECK(words_products(ready) == (c.rows == "m" || rows <= 64 ? 1 : 0));
  ready = test::prepacked(std::move(ready));
  // GEMMs that read scratch buffers belong to another template.
  for (loop::Nest& nest : ready.nests)
    if (!kernels::is_packed_weights(nest.schedule)) nest.schedule = {};
  // The kernel omits the rounding of weights to 16 bits.
  const double tolerance = x == DType::kF32 ? 2e-6 : x == DType::kF16 ? 1e-3 : 8e-3;
  const auto compare = [&](const std::vector<HostTensor>& got) {
    for (int64_t i = 0; i < loop::element_count(want[0]); ++i) {
      const double a = loop::get_number(got[0], i), b = loop::get_number(want[0], i);
      if (!(std::fabs(a - b) <= tolerance * std::max(1.0, std::fabs(b)))) FAIL("at ", i, ": ", a, " for ", b);
    }
  };
  compare(loop::interpret(ready, inputs, {.poison = true}));
  size_t choices = 1;
  for (size_t choice = target == kWarps ? 0 : SIZE_MAX / 2; choice < choices || choice == SIZE_MAX / 2;
       ++choice) {
    INFO("choice ", choice);
    const auto got = test::emulate(ready, inputs, gpu_target(target), choice, &choices);
    REQUIRE(got.has_value());
    compare(*got);
  }
}

}  // namespace

TEST_CASE("words: places of numbers and scales are each other's inverse") {
  for (const int bits : {2, 4, 8})
    for (const int64_t step : {0, 16, 32, 64, 256, -32, -128}) {
      kernels::PackedLayout layout{.bits = bits, .columns = 40, .depth = 300, .step = step};
      if (step < 0) layout.step = -step, layout.fragments = true;
      REQUIRE(layout.fits());
      for (int64_t column = 0; column < 40; column += 3)
        for (int64_t k = 0; k < 300; k += 7) {
          const auto word = kernels::word_of(layout, column, k);
          const kernels::Place place =
              kernels::number_at(layout, word, static_cast<int>(kernels::bit_of(layout, column, k).value()));
          CHECK(place.column.value() == column);
          CHECK(place.k.value() == k);
          const kernels::Place scale = kernels::scale_at(layout, kernels::scale_of(layout, column, k));
          CHECK(scale.column.value() == column);
          CHECK(scale.k.value() == (layout.step ? k / layout.step * layout.step : 0));
        }
    }
}

TEST_CASE("words: bits, blocks and types of a few rows") {
  for (const int bits : {2, 4, 8})
    for (const char* x : {"f16", "bf16", "f32"}) check({.bits = bits, .x = x}, 3);
  for (const int64_t step : {16, 64, 128, 256}) check({.k = 256, .step = step}, 3);
  check({.k = 256, .n = 64, .bits = 8, .step = 16, .scale = "f16"}, 3);
  check({.step = 128, .zero = ""}, 3);  // one scale per column
  check({.zero = "", .scale = "f16"}, 3);
}

TEST_CASE("words: odd sizes, and rows that a run decides") {
  check({.rows = "1", .k = 96, .n = 65}, 1);
  check({.rows = "m", .k = 136, .n = 72, .x = "bf16"}, 5);
  check({.rows = "m", .k = 131, .n = 70}, 9);
  check({.rows = "m", .k = 64, .n = 64}, 35);
  check({.rows = "m", .k = 80, .n = 70}, 70);
  check({.rows = "m", .k = 80, .n = 70, .x = "f32"}, 66);
  check({.rows = "1", .k = 64, .n = 9000}, 1);  // more tiles than blocks
  check({.rows = "70", .k = 64, .n = 64, .bits = 8, .zero = ""}, 70);
}

TEST_CASE("words: weights that were made floats ahead are taken back") {
  check({.ahead = true}, 3);
  check({.rows = "m", .bits = 8, .step = 128, .ahead = true}, 66);
  const loop::Program program = packed({.ahead = true});
  for (const loop::Buffer& buffer : program.buffers)
    if (buffer.storage == loop::Storage::kParameter) CHECK(buffer.name != "t");
}

TEST_CASE("words: other weights stay") {
  loop::Program program = loop::parse_program(R"(program p
  input x f16 [2, 128] ordinal 0
  weight w f16 [64, 128] bytes 16384 hash 0000000000000000
  output y f32 [2, 64] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 product (%m<2, %n<64)
      %0 : f32 = reduce sum (%k<128)
        %1 : f16 = load x[%m, %k]
        %2 : f32 = cast %1
        %3 : f16 = load w[%n, %k]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      store y[%m, %n] %0
)");
  schedule::pack_low_bit_weights(program, gpu_target(kWarpGroups));
  loop::eliminate_dead_code(program);
  CHECK(words_products(program) == 0);
}

TEST_CASE("words: warp groups take them whatever the number of rows") {
  for (const char* x : {"f16", "bf16"}) {
    const Case c{.rows = "m", .k = 136, .n = 72, .x = x};
    const loop::Program given = program_of(c);
    loop::Program ready = packed(c, kWarpGroups);
    REQUIRE(words_products(ready) == 1);
    CHECK(words_products(ready) == 1);
    const auto nest = std::find_if(ready.nests.begin(), ready.nests.end(), [](const loop::Nest& n) {
      return n.schedule.kernel == kernels::kPackedProduct;
    });
    const DeviceNest device = emit_nest(ready, *nest, gpu_target(kWarpGroups));
    REQUIRE(device.choices.size() > 2);
    for (size_t i = 0; i + 1 < device.choices.size(); ++i) {
      const DeviceKernel& kernel = device.choices[i].launches[0];
      CHECK(kernel.maps.size() == (i == 0 ? 0 : 1));  // the first is for one row, others for more
      CHECK(kernel.shared_bytes.value() <= gpu_target(kWarpGroups).shared_bytes - 2048);
    }
    CHECK(device.is_complete());
    check(c, 9, kWarpGroups);
  }
  check({.rows = "m", .k = 256, .n = 64, .bits = 8, .step = 16}, 3, kWarpGroups);
  check({.rows = "m", .k = 256, .n = 64, .bits = 2, .step = 64, .zero = ""}, 3, kWarpGroups);
  // A single row is loaded by threads.
  const loop::Program row = packed({.rows = "1"}, kWarpGroups);
  for (const loop::Nest& nest : row.nests)
    if (kernels::is_packed_weights(nest.schedule))
      CHECK(emit_nest(row, nest, gpu_target(kWarpGroups)).choices[0].launches[0].maps.empty());
  // Rows not aligned to 16 bytes, f32, and blocks that cross a pipeline stage.
  for (const Case& c : {Case{.rows = "m", .k = 131}, Case{.rows = "m", .x = "f32"},
                        Case{.rows = "m", .k = 384, .bits = 8, .step = 96}}) {
    const loop::Program ready = packed(c, kWarpGroups);
    CHECK(std::any_of(ready.nests.begin(), ready.nests.end(),
                      [](const loop::Nest& n) { return n.schedule.kernel == kernels::kPackedUnpack; }));
  }
}

TEST_CASE("words: NVRTC builds them within their registers") {
  for (const int bits : {2, 4, 8})
    for (const std::string x : {"f16", "bf16", "f32"}) {
      const Case c{.rows = "m", .k = 512, .n = 256, .bits = bits, .x = x, .scale = "f16"};
      for (const char* target : {kWarps, kWarpGroups}) {
        if (target == kWarpGroups && bits != 4 && x != "f16") continue;
        const loop::Program program = packed(c, target);
        for (const loop::Nest& nest : program.nests) {
          if (!kernels::is_packed_weights(nest.schedule)) continue;
          for (const DeviceChoice& choice : emit_nest(program, nest, gpu_target(target)).choices) {
            const Resources info = test::built_kernel(choice.launches[0], gpu_target(target)).resources;
            INFO(bits, " bits, ", x, ", ", info.registers, " registers, ", info.stack_bytes,
                 " bytes of stack");
            CHECK(info.registers > 0);
            CHECK(info.stack_bytes <= 96);  // addresses that are live across the loop
          }
        }
      }
    }
}

}  // namespace stridec::codegen::cuda

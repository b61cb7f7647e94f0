// GEMMs with a block-quantised weight: values of a few bits, scales of blocks, zero points.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/build.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/layout/pack_weights.h"
#include "tests/support/contraction_harness.h"

using namespace stridec;
using loop::NestBuilder;
using loop::Program;
using loop::ScalarOp;
using loop::Storage;
using loop::Value;
using loop::View;
using sym::Expr;
using test::buffer;

namespace {

View weight(Program& program, const std::string& name, std::vector<int64_t> shape, DType dtype) {
  loop::HostTensor tensor = loop::make_tensor(dtype, shape);
  for (int64_t i = 0; i < loop::element_count(tensor); ++i)
    loop::set_number(tensor, i,
                     is_float(dtype)
                         ? static_cast<double>((i * 37 + 11) % 101) / 64 - 0.75
                         : static_cast<double>((i * 61 + i / 7) % 251) - (is_signed(dtype) ? 125 : 0));
  auto bytes = std::make_shared<std::vector<uint8_t>>(std::move(tensor.bytes));
  loop::Buffer buffer{.name = name, .dtype = dtype, .storage = Storage::kParameter};
  for (int64_t extent : shape) buffer.shape.push_back(extent);
  buffer.weight = {bytes, bytes->data(), bytes->size()};
  return loop::whole(program, loop::add_buffer(program, std::move(buffer)));
}

enum class Zero { kNone, kConstant, kBlocks };

struct Blocks {
  int64_t depth, columns, block;  // block 0: one scale per column
  int bits = 4;                   // 8: signed bytes, not packed
  Zero zero = Zero::kConstant;
  bool unpacked = false;  // nests of Program::prepack unpack two values from each byte
  bool two_dims = false;  // k as two dims, of blocks and within them
  bool bytes = false;     // x is integers times a scale per block, and the weights are unsigned
};

// y[m, n] = -sum over k of x[m, k] * (number[n, k] - zero[n, k / block]) * scale[n, k / block].
Program product(const Blocks& b) {
  Program program;
  const Expr m = sym::var("m");
  program.symbols.push_back({.var = m, .input = 0, .dim = 0});
  program.facts.set_range(m, 0, 300);
  const View x = buffer(program, "x", {m, b.depth}, Storage::kInput),
             y = buffer(program, "y", {m, b.columns}, Storage::kOutput);
  program.inputs = {x.buffer}, program.outputs = {y.buffer};
  program[x.buffer].ordinal = program[y.buffer].ordinal = 0;
  const int64_t block = b.block ? b.block : b.depth, blocks = (b.depth + block - 1) / block;
  View numbers = weight(program, "numbers", {b.columns, blocks * block},
                        b.bits == 8 && !b.bytes ? DType::kI8 : DType::kU8);
  if (b.unpacked) {
    const View packed = weight(program, "packed", {b.columns, blocks * block / 2}, DType::kU8);
    numbers =
        buffer(program, "unpacked", {b.columns, blocks * block / 2, 2}, Storage::kParameter, DType::kU8);
    program[numbers.buffer].prepacked = true;
    for (int64_t half : {0, 1}) {
      NestBuilder nb(program, "unpack");
      const auto i = nb.dims({b.columns, blocks * block / 2});
      const Value shifted = binary(ScalarOp::kShr, nb.load(packed, i), nb.constant(DType::kU8, 4.0 * half));
      nb.store(numbers, {i[0], i[1], half}, binary(ScalarOp::kBitAnd, shifted, nb.constant(DType::kU8, 15)));
      program.prepack.push_back(nb.finish());
    }
    program.steps.clear();
  }
  const View scale = weight(program, "scale", {b.columns, blocks}, DType::kF32),
             zero = weight(program, "zero", {b.columns, blocks}, DType::kU8);
  NestBuilder nb(program, "blocks");
  const auto i = nb.dims({m, b.columns});
  const std::vector<Expr> dims = b.two_dims ? std::vector<Expr>{blocks, block} : std::vector<Expr>{b.depth};
  const Value sum = nb.reduce(
      loop::Combine::kSum, dims,
      [&](const std::vector<Expr>& at) {
        const Expr k = b.two_dims ? at[0] * block + at[1] : at[0];
        const Expr which = b.two_dims ? at[0] : sym::floordiv(k, block);
        Value number = b.unpacked ? nb.load(numbers, {i[1], sym::floordiv(k, 2), sym::mod(k, 2)})
                                  : nb.load(numbers, {i[1], k});
        if (b.bits < 8 && !b.unpacked)
          number = binary(ScalarOp::kBitAnd, number, nb.constant(DType::kU8, (1 << b.bits) - 1));
        number = nb.cast(number, DType::kF32);
        if (b.zero == Zero::kConstant) number = number - nb.constant(DType::kF32, 1 << (b.bits - 1));
        if (b.zero == Zero::kBlocks) number = number - nb.cast(nb.load(zero, {i[1], which}), DType::kF32);
        return nb.load(x, {i[0], k}) * (number * nb.load(scale, {i[1], which}));
      },
      b.bytes ? block : 0);
  nb.store(y, i, unary(ScalarOp::kNeg, sum));
  nb.finish();
  return program;
}

// Bytes of the weights that the contraction reads.
int64_t bytes_read(const Program& program) {
  int64_t bytes = 0;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    for (loop::BufferId id : loop::buffers_of(program[std::get<loop::Launch>(step.node).nest]))
      if (program[id].storage == Storage::kParameter)
        bytes += sym::as_const(loop::element_count(program[id].shape)).value() * byte_size(program[id].dtype);
  });
  return bytes;
}

void check(const Blocks& b) {
  CAPTURE(b.depth);
  CAPTURE(b.columns);
  CAPTURE(b.block);
  CAPTURE(b.bits);
  const Program program = product(b);
  for (const char* name : {"native", "x86-64-v3", "x86-64-v2"}) {
    const CpuTarget& target = cpu_target(name);
    CAPTURE(target.name);
    loop::NestId nest;
    loop::for_each_step(program.steps,
                        [&](const loop::Step& step) { nest = std::get<loop::Launch>(step.node).nest; });
    auto plans = schedule::contraction_plans(program, program[nest], target);
    // With swapped operands x is packed into panels, which is the only possibility for weights of one column.
    std::erase_if(plans, [&](const auto& ranked) {
      return b.columns > 1 && ranked.plan.b != kernels::GemmPlan::B::kCompact;
    });
    REQUIRE(!plans.empty());
    plans.resize(std::min<size_t>(plans.size(), target.vnni ? 2 : 1));
    for (const auto& ranked : plans) {
      Program scheduled = program;
      scheduled[nest].schedule = kernels::to_schedule(ranked.plan);
      CAPTURE(loop::to_string(scheduled[nest].schedule));
      schedule::pack_weights(scheduled);
      const bool bytes = b.bytes && target.vnni;
      CHECK(ranked.plan.bytes == (bytes ? b.block : 0));
      if (bytes) {
        const std::string text = codegen::cpu::emit_kernel(scheduled, scheduled[nest], target).text;
        CHECK(text.find("vpdpbusd") != std::string::npos);
      }
      if (b.columns > 1) {
        const int64_t panel = ranked.plan.panel, columns = (b.columns + panel - 1) / panel * panel;
        const int64_t words = (b.depth * b.bits + 31) / 32;
        const int64_t blocks = b.block ? (b.depth + b.block - 1) / b.block : 1;
        CHECK(bytes_read(scheduled) <= columns * (words * 4 + blocks * (b.zero == Zero::kBlocks ? 5 : 4)));
      }
      codegen::cpu::CompiledProgram compiled(scheduled, {.target = target});
      for (int64_t rows : {0, 1, 2, 31}) {
        loop::HostTensor input = loop::make_tensor(DType::kF32, {rows, b.depth});
        for (int64_t e = 0; e < rows * b.depth; ++e) {
          double number = static_cast<double>(e % 13) / 6 - 1;
          if (b.bytes) {  // one of the blocks is all zeros
            const int64_t within = e % b.depth % b.block, which = e / b.block;
            const auto integer = static_cast<double>(within == 5 ? -127 : (e * 73 + which) % 255 - 127);
            number = which % 5 == 3 ? 0 : integer * (static_cast<double>(which % 7 + 1) / 300);
          }
          loop::set_number(input, e, number);
        }
        const auto expected = loop::interpret(program, {input});
        const auto actual = compiled.run({input});
        double worst = 0, largest = 1;
        for (int64_t e = 0; e < rows * b.columns; ++e) {
          largest = std::max(largest, std::abs(loop::get_number(expected[0], e)));
          worst =
              std::max(worst, std::abs(loop::get_number(expected[0], e) - loop::get_number(actual[0], e)));
        }
        CHECK(worst < 1e-5 * largest);
      }
    }
  }
}

}  // namespace

TEST_CASE("numbers of a few bits with scales and zero points of blocks, of odd depths and widths") {
  for (const Zero zero : {Zero::kNone, Zero::kConstant, Zero::kBlocks}) {
    check({.depth = 64, .columns = 64, .block = 32, .zero = zero});
    check({.depth = 77, .columns = 83, .block = 16, .zero = zero});
  }
}

TEST_CASE("numbers of few columns, long blocks, one block, blocks of no power of two") {
  check({.depth = 16, .columns = 1, .block = 16});
  check({.depth = 33, .columns = 3, .block = 16});
  check({.depth = 8, .columns = 7, .block = 0});
  check({.depth = 300, .columns = 5, .block = 128, .zero = Zero::kBlocks});
  check({.depth = 450, .columns = 130, .block = 256, .zero = Zero::kBlocks});
  check({.depth = 40, .columns = 70, .block = 8, .two_dims = true});
  check({.depth = 60, .columns = 33, .block = 12, .zero = Zero::kBlocks, .two_dims = true});
}

TEST_CASE("numbers of two and eight bits") {
  for (const int bits : {2, 8}) {
    check({.depth = 64, .columns = 64, .block = 32, .bits = bits});
    check({.depth = 75, .columns = 19, .block = 16, .bits = bits, .zero = Zero::kBlocks});
    check({.depth = 50, .columns = 66, .block = 0, .bits = bits, .zero = Zero::kNone});
  }
}

TEST_CASE("rows of integers times one number in each block are multiplied as bytes") {
  for (const int bits : {2, 4, 8}) {
    for (const Zero zero : {Zero::kNone, Zero::kConstant, Zero::kBlocks})
      check({.depth = 128, .columns = 83, .block = 32, .bits = bits, .zero = zero, .bytes = true});
    if (bits > 2) check({.depth = 96, .columns = 64, .block = 16, .bits = bits, .bytes = true});
    check({.depth = 256, .columns = 40, .block = 128, .bits = bits, .two_dims = true, .bytes = true});
  }
}

TEST_CASE("numbers that other nests took out of bytes keep their bits") {
  check({.depth = 96, .columns = 70, .block = 32, .unpacked = true});
  check({.depth = 90, .columns = 20, .block = 16, .zero = Zero::kBlocks, .unpacked = true});
}

// Scatter updates at data-dependent positions, emulated and compared with the interpreter: sorted or not,
// atomic or in order.
#include "compiler/codegen/cuda/points/scatter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "tests/support/emulate.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sample.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;

struct Case {
  std::string dtype = "f32", combine = "sum";
  int64_t rows = 300, columns = 3, updates = 1500;
  int64_t hot = 0;  // number of updates to one row
  std::string mode = "skip";
};

// y[i[u], c] = combine(y[i[u], c], v[u, c]) after y = x; the number of updates is a symbol.
loop::Program program_of(const Case& c) {
  const std::string y = cat("[", c.rows, ", ", c.columns, "]");
  loop::Program program = loop::parse_program(cat(
      "program p\n  symbol n = input 1 dim 0 in 0..1048576\n  input x ", c.dtype, " ", y,
      " ordinal 0\n  input i i32 [n] ordinal 1\n  input v ", c.dtype, " [n, ", c.columns,
      "] ordinal 2\n  output y ", c.dtype, " ", y, " ordinal 0\n  inputs (x, i, v)\n  outputs (y)\n  steps\n",
      "    nest 0 copy (%r<", c.rows, ", %c<", c.columns, ")\n      %0 : ", c.dtype,
      " = load x[%r, %c]\n      store y[%r, %c] %0\n    nest 1 scatter (%u<n, %c<", c.columns,
      ")\n      %0 : i32 = load i[%u]\n      bind %r < ", c.rows, " = %0 wrap ", c.mode,
      "\n      %1 : ", c.dtype, " = load v[%u, %c]\n      update ", c.combine, " y[%r, %c] %1\n"));
  loop::verify(program);
  return program;
}

std::vector<HostTensor> inputs_of(const loop::Program& program, const Case& c) {
  const auto draw = [&](int input, auto&& number) {
    const loop::Buffer& buffer = program[program.inputs[static_cast<size_t>(input)]];
    return test::drawn_tensor(
        buffer.dtype, test::shape_of(buffer, [&](const std::string&) { return c.updates; }), input, number);
  };
  const bool whole = !is_float(program[program.inputs[0]].dtype);
  const auto value = [&](double unit) {
    if (whole) return std::floor(5 * unit);
    return c.combine == "prod" ? 1 + unit / 64 : 2 * unit - 1;
  };
  // Includes indices out of range on either side, which are skipped.
  HostTensor index = draw(1, [&](double unit) { return std::floor((2.1 * unit - 1.05) * c.rows); });
  for (int64_t u = 0; u < c.hot; ++u) std::memcpy(index.bytes.data() + 4 * u, "\2\0\0", 4);
  return {draw(0, value), index, draw(2, value)};
}

void check(const Case& c, double tolerance) {
  INFO(c.combine, " of ", c.dtype, ", ", c.updates, " updates of ", c.columns, " columns in ", c.rows,
       " rows");
  const loop::Program program = program_of(c);
  if (!test::in_sample(cat(loop::to_string(program), c.updates, " ", c.hot), 3)) return;
  const std::vector<HostTensor> inputs = inputs_of(program, c);
  const HostTensor want = loop::interpret(program, inputs)[0];
  size_t choices = 1;
  for (size_t choice = 0; choice < choices; ++choice) {
    const auto got = test::emulate(program, inputs, gpu_target("sm_90a"), choice, &choices);
    REQUIRE(got.has_value());
    double error = 0;
    for (int64_t e = 0; e < loop::element_count(want); ++e) {
      const double is = loop::get_number((*got)[0], e), should = loop::get_number(want, e);
      if (std::isnan(is) && std::isnan(should)) continue;
      const double off = std::abs(is - should) / std::max(1.0, std::abs(should));
      error = std::max(error, std::isnan(off) ? HUGE_VAL : off);
    }
    INFO("choice ", choice, " of ", choices);
    CHECK(error <= tolerance);
  }
}

TEST_CASE("many updates are sorted, few are done one by one") {
  for (const int64_t columns : {1, 3, 40})
    for (const int64_t updates : {0, 7, 255, 256, 2500}) {
      check({.rows = 700, .columns = columns, .updates = updates}, 1e-6);
      check({.dtype = "f64", .rows = 700, .columns = columns, .updates = updates}, 1e-14);
    }
  check({.dtype = "f16", .rows = 2000, .updates = 1100}, 4e-3);
  check({.combine = "prod", .rows = 2000, .updates = 1100}, 1e-6);
  check({.dtype = "i8", .combine = "prod", .updates = 1100}, 0);
  check({.dtype = "u8"}, 0);
}

TEST_CASE("rows with more updates than a thread adds up are put together in order") {
  for (const int64_t rows : {1, 3, 40}) check({.rows = rows, .columns = 2, .updates = 3000}, 1e-5);
  for (const int64_t hot : {63, 64, 65, 128, 129, 1000, 2000})
    check({.rows = 5000, .columns = 1, .updates = 2000, .hot = hot}, 1e-5);
  check({.dtype = "f64", .combine = "prod", .rows = 7, .updates = 1030}, 1e-12);
}

TEST_CASE("sums of integers, and what is largest or least, come in any order") {
  for (const char* dtype : {"i32", "u32", "i64", "u64", "f32", "f64"})
    for (const char* combine : {"sum", "max", "min", "prod"}) {
      const bool rounds = dtype[0] == 'f' && combine[0] != 'm';
      check({.dtype = dtype, .combine = combine, .rows = 20, .updates = 1200}, rounds ? 1e-4 : 0);
    }
}

TEST_CASE("dims that are merged count as rows together") {
  loop::Program program = loop::parse_program(
      "program p\n  symbol n = input 0 dim 0 in 0..1024\n  input i i64 [n, 8, 45] ordinal 0\n"
      "  input v f32 [n, 8, 45] ordinal 1\n  output y f32 [n, 8, 42] ordinal 0\n  inputs (i, v)\n  outputs "
      "(y)\n"
      "  steps\n    nest 0 fill (%a<n, %b<8, %c<42)\n      %0 : f32 = constant 0\n      store y[%a, %b, %c] "
      "%0\n"
      "    nest 1 scatter (%a<n, %b<8, %u<45)\n      schedule merge %a %b\n      %0 : i64 = load i[%a, %b, "
      "%u]\n"
      "      bind %r < 42 = %0 wrap skip\n      %1 : f32 = load v[%a, %b, %u]\n"
      "      update sum y[%a, %b, %r] %1\n");
  loop::verify(program);
  const std::vector<int64_t> shape = {3, 8, 45};
  HostTensor places = loop::make_tensor(DType::kI64, shape), values = loop::make_tensor(DType::kF32, shape);
  for (int64_t e = 0; e < loop::element_count(values); ++e) loop::set_number(values, e, 1 + e % 7);
  const HostTensor want = loop::interpret(program, {places, values})[0];
  size_t choices = 1;
  for (size_t choice = 0; choice < choices; ++choice) {
    const auto got = test::emulate(program, {places, values}, gpu_target("sm_90a"), choice, &choices);
    REQUIRE(got.has_value());
    for (int64_t e = 0; e < loop::element_count(want); ++e)
      CHECK(loop::get_number((*got)[0], e) == loop::get_number(want, e));
  }
}

TEST_CASE("NaN of either sign is the largest and the least") {
  for (const char* combine : {"max", "min"}) {
    const Case c{.combine = combine, .rows = 10, .columns = 2, .updates = 90};
    const loop::Program program = program_of(c);
    std::vector<HostTensor> inputs = inputs_of(program, c);
    for (const size_t input : {size_t{0}, size_t{2}}) {
      auto* numbers = reinterpret_cast<float*>(inputs[input].bytes.data());
      const float nan = std::numeric_limits<float>::quiet_NaN();
      numbers[0] = nan, numbers[3] = std::copysign(nan, -1.0F), numbers[5] = -0.0F, numbers[7] = 0;
    }
    size_t choices = 1;
    const HostTensor want = loop::interpret(program, inputs)[0],
                     got = test::emulate(program, inputs, gpu_target("sm_90a"), 0, &choices).value()[0];
    for (int64_t e = 0; e < loop::element_count(want); ++e) {
      const double is = loop::get_number(got, e), should = loop::get_number(want, e);
      CHECK((is == should || (std::isnan(is) && std::isnan(should))));
    }
  }
}

}  // namespace
}  // namespace stridec::codegen::cuda

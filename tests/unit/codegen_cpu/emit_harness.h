// Compiles programs and compares them with the interpreter.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/interpret.h"
#include "compiler/schedule/heuristics/loop_nest.h"
#include "tests/support/program_builder.h"

namespace emit_test {

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;
using testing::ProgramBuilder;

inline constexpr DType kF32 = DType::kF32;

inline HostTensor random_tensor(DType dtype, std::vector<int64_t> shape, uint32_t seed, double lo = -4,
                                double hi = 4) {
  HostTensor t = make_tensor(dtype, std::move(shape));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(lo, hi);
  for (int64_t i = 0; i < element_count(t); ++i) {
    double v = real(random);
    if (is_bool(dtype)) v = v > 0;
    if (is_integer(dtype)) v = std::floor(is_signed(dtype) ? v : std::fabs(v));
    set_number(t, i, v);
  }
  return t;
}

// Compares elementwise: equal, both NaN, or within `relative` (floats).
inline void check_close(const HostTensor& got, const HostTensor& want, double relative,
                        const std::string& what) {
  REQUIRE_MESSAGE(got.shape == want.shape, what);
  int wrong = 0;
  for (int64_t i = 0; i < element_count(want) && wrong < 5; ++i) {
    const double g = get_number(got, i), w = get_number(want, i);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    if (is_float(want.dtype) && std::isfinite(w) &&
        std::fabs(g - w) <= relative * std::max(std::fabs(w), 1e-30))
      continue;
    ++wrong;
    CHECK_MESSAGE(false, cat(what, ": element ", i, " is ", g, ", expected ", w));
  }
}

struct HarnessOptions {
  double relative = 1e-6;
  std::string cpu = "native";
  std::vector<std::string> names;  // output names, for messages
};

inline void check_program(const Program& program, const std::vector<HostTensor>& inputs,
                          const HarnessOptions& options = {}) {
  const std::vector<HostTensor> want = interpret(program, inputs, {.poison = true});
  codegen::cpu::RunCompiledOptions run;
  run.target = cpu_target(options.cpu);
  std::vector<HostTensor> got;
  try {
    got = codegen::cpu::run_compiled(program, inputs, run);
  } catch (const Error& e) {
    FAIL(render(e.diagnostic));
  }
  REQUIRE(got.size() == want.size());
  for (size_t o = 0; o < want.size(); ++o)
    check_close(got[o], want[o], options.relative, cat(options.cpu, " ", program[program.outputs[o]].name));
}

// Checks the program as it is, and with the schedules chosen for two CPUs.
inline void check(const Program& program, const std::vector<HostTensor>& inputs, double relative = 2e-5) {
  check_program(program, inputs, {relative, "native", {}});
  for (const char* cpu : {"native", "x86-64-v3"}) {
    Program chosen = program;
    schedule::choose_general(chosen, cpu_target(cpu));
    std::string schedules;
    for (const Nest& nest : chosen.nests) schedules += to_string(nest.schedule) + "; ";
    CAPTURE(schedules);
    check_program(chosen, inputs, {relative, cpu, {}});
  }
}

// The same nests, vectorised along the last dim of each.
inline Program vectorised(Program program, int width) {
  for (Nest& nest : program.nests) {
    if (nest.dims.empty()) continue;
    std::vector<std::string> all;
    for (const Dim& d : nest.dims) all.push_back(d.var.name());
    nest.schedule.directives = {{"vectorize", {all.back(), cat(width)}}};
    if (loop::effects_of(nest).updates) continue;
    nest.schedule.directives.push_back({"tasks", all});
    nest.schedule.directives.push_back({"chunk", {cat(2 * width)}});
  }
  return program;
}

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace emit_test

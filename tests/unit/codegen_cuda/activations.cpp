// Functions with a GPU-specific implementation, emulated and compared with the standard library in double
// precision.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/support/emulate.h"

using namespace stridec;
using loop::HostTensor;

namespace {

// Both signs, from far below the smallest step to far beyond saturation.
HostTensor points() {
  std::vector<double> values = {0, -0.0, INFINITY, -INFINITY, NAN};
  for (double x = 1e-6; x < 1e3; x *= 1.003) values.insert(values.end(), {x, -x});
  HostTensor out = loop::make_tensor(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) loop::set_number(out, static_cast<int64_t>(i), values[i]);
  return out;
}

// Applies the statements to x (%0 : f32) and returns the result as dtype `to`.
HostTensor run(const HostTensor& x, DType to, const std::string& statements, const std::string& result) {
  const std::string n = cat(x.shape[0]);
  loop::Program program = loop::parse_program(
      cat("program p\n  input x f32 [", n, "] ordinal 0\n  output y ", name(to), " [", n,
          "] ordinal 0\n  inputs (x)\n  outputs (y)\n  steps\n    nest 0 f (%i<", n,
          ")\n      %0 : f32 = load x[%i]\n", statements,
          to == DType::kF32 ? "" : cat("      %99 : ", name(to), " = cast ", result, "\n"),
          "      store y[%i] ", to == DType::kF32 ? result : "%99", "\n"));
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  size_t choices = 1;
  auto out = test::emulate(program, {x}, gpu_target("sm_90a"), 0, &choices);
  REQUIRE(out.has_value());
  return std::move(out->front());
}

// The largest error, relative except below `least`.
double worst(const HostTensor& x, const HostTensor& y, double least, const std::function<double(double)>& f) {
  double worst = 0;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    const double want = f(loop::get_number(x, i)), got = loop::get_number(y, i);
    if (want == got || (std::isnan(want) && std::isnan(got))) continue;
    const double error = std::fabs(got - want) / std::max(std::fabs(want), least);
    worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
  }
  return worst;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

}  // namespace

TEST_CASE("activations of f32 are exact to some units in the last place") {
  const HostTensor x = points();
  const std::pair<const char*, double (*)(double)> functions[] = {
      {"erf", std::erf}, {"tanh", std::tanh}, {"sigmoid", sigmoid}};
  for (const auto& [op, f] : functions) {
    CAPTURE(op);
    CHECK(worst(x, run(x, DType::kF32, cat("      %1 : f32 = ", op, " %0\n"), "%1"), 1e-30, f) < 0x1p-21);
  }
}

TEST_CASE("activations that are rounded to 16 bits are as exact as that, where their sums cancel as well") {
  const HostTensor x = points();
  const std::string one = "      %2 : f32 = constant 1\n      %3 : f32 = add %1 %2\n";
  for (const DType to : {DType::kF16, DType::kBF16}) {
    const double step = to == DType::kF16 ? 0x1p-11 : 0x1p-8;
    CAPTURE(name(to));
    // Below that, even f16 lacks full precision.
    CHECK(worst(x, run(x, to, "      %1 : f32 = erf %0\n" + one, "%3"), 0x1p-14,
                [](double v) { return std::erfc(-v); }) < 1.1 * step);
    CHECK(
        worst(x,
              run(x, to, "      %1 : f32 = erf %0\n      %2 : f32 = constant 1\n      %3 : f32 = sub %2 %1\n",
                  "%3"),
              0x1p-14, [](double v) { return std::erfc(v); }) < 1.1 * step);
    CHECK(worst(x, run(x, to, "      %1 : f32 = tanh %0\n" + one, "%3"), 0x1p-14,
                [](double v) { return 2 * sigmoid(2 * v); }) < 1.1 * step);
    CHECK(worst(x, run(x, to, "      %1 : f32 = sigmoid %0\n", "%1"), 0x1p-14, sigmoid) < 1.1 * step);
  }
}

TEST_CASE("sums of one and a function of f32 do not leave their range, and tails keep subnormal numbers") {
  const HostTensor x = points();
  const std::string one = "      %2 : f32 = constant 1\n";
  for (const std::string op : {"erf", "tanh"})
    for (const std::string sum : {"add %1 %2", "sub %2 %1"}) {
      CAPTURE(op);
      CAPTURE(sum);
      const HostTensor y = run(
          x, DType::kF32, cat("      %1 : f32 = ", op, " %0\n", one, "      %3 : f32 = ", sum, "\n"), "%3");
      for (int64_t i = 0; i < x.shape[0]; ++i) {
        const double v = loop::get_number(y, i);
        if (!(v >= 0 && v <= 2)) CHECK(std::isnan(loop::get_number(x, i)));
      }
    }
  CHECK(worst(x, run(x, DType::kF32, "      %1 : f32 = sigmoid %0\n", "%1"), 0x1p-128, sigmoid) < 0x1p-20);
}

TEST_CASE("the tail of the normal distribution does not cancel") {
  const HostTensor x = points();
  for (const std::string type : {"f32", "f64"}) {
    CAPTURE(type);
    const std::string statements = cat(
        "      %1 : ", type, " = cast %0\n      %2 : ", type,
        " = constant -0.7071067811865476\n      %3 : ", type, " = mul %1 %2\n      %4 : ", type,
        " = erf %3\n      %5 : ", type, " = constant 1\n      %6 : ", type, " = sub %5 %4\n      %7 : ", type,
        " = constant 0.5\n      %8 : ", type, " = mul %6 %7\n      %9 : f32 = cast %8\n");
    CHECK(worst(x, run(x, DType::kF32, statements, "%9"), 0x1p-126, normal_cdf) <
          (type == "f32" ? 0x1p-20 : 0x1p-23));
  }
}

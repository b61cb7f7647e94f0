// Accuracy of activations as operators, and the range of those that models write as formulas, over all
// values: on each processor, after all passes.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <random>

#include "compiler/base/diagnostic.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/graph/builder.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/op_table.h"
#include "compiler/schedule/pass_list.h"
#include "tests/support/folder.h"
#include "tests/unit/frontend/onnx_bytes.h"

using namespace stridec;
using graph::Builder;
using graph::OpKind;
using loop::HostTensor;
using ops::Term;

namespace {

using Real = long double;
constexpr int64_t kPoints = 20000;

Real sigmoid(Real x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }
Real softplus(Real x) { return log1pl(expl(-fabsl(x))) + fmaxl(x, 0); }
Real normal_cdf(Real x) { return erfcl(-x / sqrtl(2)) / 2; }
// A gate times x, 0 where the gate is.
Real gated(Real x, Real gate) { return gate == 0 ? copysignl(0, x) : x * gate; }

std::string attribute_string(const std::string& name, const std::string& value) {
  using namespace onnx::bytes;
  return text(1, name) + text(4, value) + number(20, 3);
}

// The largest error in ulps of f32 and f64.
struct Activation {
  const char* op_type;
  Real (*exact)(Real);
  double f32, f64;
  std::vector<std::string> attributes = {};
};
const Activation kActivations[] = {
    {"Gelu", [](Real x) { return gated(x, normal_cdf(x)); }, 4.2, 3.6},
    {"Gelu",
     [](Real x) { return gated(x, sigmoid(2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x))); },
     160,  // what the rounding of an argument near -87 makes of its exponential; of f64: near -700
     1100,
     {attribute_string("approximate", "tanh")}},
    {"Swish", [](Real x) { return gated(x, sigmoid(x)); }, 2.7, 2.7},
    {"Mish", [](Real x) { return gated(x, tanhl(softplus(x))); }, 4.5, 4},
    {"Softplus", softplus, 2.5, 2.5},
    {"Softsign", [](Real x) { return std::isinf(x) ? copysignl(1, x) : x / (1 + fabsl(x)); }, 1.6, 1.6},
    {"Elu", [](Real x) { return x < 0 ? expm1l(x) : x; }, 1.1, 1.2},
    {"Selu",
     [](Real x) {
       return 1.05070102214813232421875L * (x <= 0 ? 1.67326319217681884765625L * expm1l(x) : x);
     },
     1.8, 1.8},
};

// Formulas that models contain. Rounded after each operation, they stay within these bounds.
struct Formula {
  const char* name;
  Term (*build)(Term);
  double least, most;
};
Term one_erf(Term x) { return ops::erf(x) + 1.0; }
Term normal(Term x) { return (ops::erf(x / std::sqrt(2.0)) + 1.0) * 0.5; }
const Formula kFormulas[] = {
    {"1 + erf(x)", one_erf, 0, 2},
    {"1 - erf(x)", [](Term x) { return ops::subtract_from(1, ops::erf(x)); }, 0, 2},
    {"normal distribution", normal, 0, 1},
    {"its logarithm", [](Term x) { return ops::log(normal(x)); }, -INFINITY, 0},
    {"0.5 + 0.5 erf(x)", [](Term x) { return ops::erf(x) * 0.5 + 0.5; }, 0, 1},
    {"gelu", [](Term x) { return x * one_erf(x / std::sqrt(2.0)) * 0.5; }, -0.2, INFINITY},
    {"1 + tanh(x)", [](Term x) { return ops::tanh(x) + 1.0; }, 0, 2},
    {"1 - tanh(x)^2", [](Term x) { return ops::subtract_from(1, ops::square(ops::tanh(x))); }, 0, 1},
    {"1 - sigmoid(x)", [](Term x) { return ops::subtract_from(1, ops::sigmoid(x)); }, 0, 1},
    {"log(sigmoid(x))", [](Term x) { return ops::log(ops::sigmoid(x)); }, -INFINITY, 0},
    {"log(1 + exp(x))", [](Term x) { return ops::log(ops::exp(x) + 1.0); }, 0, INFINITY},
    {"exp(x) - 1", [](Term x) { return ops::exp(x) - 1.0; }, -1, INFINITY},
    {"1 - cos(x)", [](Term x) { return ops::subtract_from(1, ops::apply(OpKind::kCos, x)); }, 0, 2},
};

HostTensor points(DType dtype, int64_t n) {
  HostTensor t = loop::make_tensor(dtype, {n});
  std::mt19937_64 random(5);
  const double special[] = {0,       -0.0, INFINITY, -INFINITY, NAN,   1e-40, -1e-40, 1e-310,
                            -1e-310, 3e38, -3e38,    1e300,     -1e10, -1e4,  1e4,    -5.9,
                            5.9,     -87,  87,       -103.5,    3.92,  -3.92};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = random();
    double x = i % 4 == 0             ? std::uniform_real_distribution<double>(-15, 15)(random)
               : i % 4 == 1           ? std::uniform_real_distribution<double>(-110, 110)(random)
               : i % 4 == 2           ? std::uniform_real_distribution<double>(-2, 2)(random)
               : dtype == DType::kF64 ? std::bit_cast<double>(bits)
                                      : std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (i < static_cast<int64_t>(std::size(special))) x = special[i];
    set_number(t, i, x);
  }
  return t;
}

// A node of each operator.
graph::Graph operators(DType dtype, int64_t n) {
  using namespace onnx::bytes;
  const int type = dtype == DType::kF32 ? 1 : dtype == DType::kF16 ? 10 : dtype == DType::kF64 ? 11 : 16;
  GraphBytes g{.inputs = {value_info("x", {n}, type)}};
  for (const Activation& a : kActivations) {
    const std::string y = cat("y", g.outputs.size());
    g.nodes.push_back(node(a.op_type, {"x"}, {y}, a.attributes));
    g.outputs.push_back(value_info(y, {n}, type));
  }
  testing::Folder folder;
  onnx::Imported imported =
      onnx::import_model(onnx::read_model(folder.write("m.onnx", model(g, 24, "", 11))));
  for (const Diagnostic& problem : imported.problems) FAIL(render(problem));
  return std::move(imported.graph);
}

graph::Graph formulas(DType dtype, int64_t n) {
  graph::Graph g;
  g.name = "formulas";
  Builder b(g, ops::shape_table());
  const Term x(b, b.input("x", {dtype, {n}}));
  for (const Formula& formula : kFormulas) b.output(formula.name, formula.build(x).id());
  return g;
}

// Compiles for the processor with all passes.
std::vector<HostTensor> run(const graph::Graph& g, const HostTensor& x, const std::string& cpu) {
  loop::Program program = ops::lower(g);
  codegen::cpu::RunCompiledOptions options;
  options.target = cpu_target(cpu);
  schedule::run_cpu_passes(program, options.target);
  return codegen::cpu::run_compiled(program, {x}, options);
}

std::vector<std::string> processors() {
  std::vector<std::string> out = {"x86-64-v2", "x86-64-v3"};
  if (cpu_target("native").avx512) out.push_back("x86-64-v4");
  return out;
}

// Error in ulps. Results below 2^-118 (f32) and 2^-1012 (f64) count as those values: a subnormal gate has
// fewer digits, and x times it is larger.
double ulps(DType dtype, double got, Real exact) {
  const bool wide = dtype == DType::kF64;
  const double rounded = wide ? static_cast<double>(exact) : round_float(dtype, static_cast<float>(exact));
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : INFINITY;
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : INFINITY;
  if (std::isinf(got) || std::isinf(rounded)) return INFINITY;
  int exponent;
  frexpl(exact, &exponent);
  const int mantissa = wide ? 53 : dtype == DType::kF32 ? 24 : dtype == DType::kF16 ? 11 : 8;
  const int least = wide ? -1012 : dtype == DType::kF16 ? -13 : -118;
  return static_cast<double>(fabsl(got - exact) / ldexpl(1, std::max(exponent, least) - mantissa));
}

}  // namespace

// Prints a table of the largest errors: rows are activations, columns types and processors.
TEST_CASE("activations are exact to the table's units in the last place for all numbers") {
  std::string heading;
  std::vector<std::string> rows(std::size(kActivations));
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const std::string& cpu : processors()) {
      const HostTensor x = points(dtype, kPoints);
      const std::vector<HostTensor> got = run(operators(dtype, kPoints), x, cpu);
      heading += cat("  ", name(dtype), " ", cpu.substr(7));
      for (size_t a = 0; a < got.size(); ++a) {
        const Activation& activation = kActivations[a];
        double worst = 0, at = 0, value = 0;
        for (int64_t i = 0; i < x.shape[0]; ++i) {
          const double v = get_number(x, i), y = get_number(got[a], i),
                       e = ulps(dtype, y, activation.exact(v));
          if (e > worst) worst = e, at = v, value = y;
        }
        const double bound = dtype == DType::kF32   ? activation.f32
                             : dtype == DType::kF64 ? activation.f64
                                                    : 0.52;
        CHECK_MESSAGE(worst <= bound, cat(cpu, " ", name(dtype), " ", activation.op_type, ": ", worst,
                                          " ulp at ", at, ": ", value));
        char number[16];
        std::snprintf(number, sizeof number, "%8.2f", worst);
        rows[a] += number;
      }
    }
  for (size_t a = 0; a < rows.size(); ++a) rows[a] += cat("  ", kActivations[a].op_type);
  MESSAGE("largest errors in ulp\n", heading, "\n", join(rows, "\n"));
}

TEST_CASE("what models write out around functions that cancel stays within its range") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const std::string& cpu : processors()) {
      const HostTensor x = points(dtype, kPoints);
      const std::vector<HostTensor> got = run(formulas(dtype, kPoints), x, cpu);
      for (size_t f = 0; f < got.size(); ++f)
        for (int64_t i = 0; i < x.shape[0]; ++i) {
          const double v = get_number(x, i), y = get_number(got[f], i);
          if (!std::isfinite(v) || (y >= kFormulas[f].least && y <= kFormulas[f].most)) continue;
          FAIL_CHECK(cat(cpu, " ", name(dtype), " ", kFormulas[f].name, " at ", v, ": ", y));
          break;
        }
    }
}

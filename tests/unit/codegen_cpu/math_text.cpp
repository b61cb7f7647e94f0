// Accuracy of the elementary functions in ulps, against the C library's long double. Also checks that
// consumers of a function in its nest get its rounded result.
#include <bit>
#include <cstdio>

#include "compiler/base/numeric.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

long double sigmoid(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

// The largest error per type in ulps, and the bounds of all results.
struct Function {
  ScalarOp op;
  long double (*exact)(long double, long double);
  double f32, f64;
  double least = -INFINITY, most = INFINITY;
};
template <long double (*f)(long double)>
long double of_one(long double x, long double) {
  return f(x);
}
const Function kFunctions[] = {
    {ScalarOp::kExp, of_one<expl>, 1.1, 1, 0},
    {ScalarOp::kExpm1, of_one<expm1l>, 1.7, 2.1, -1},
    {ScalarOp::kLog, of_one<logl>, 0.8, 0.8},
    {ScalarOp::kLog1p, of_one<log1pl>, 2.4, 2.4},
    {ScalarOp::kSin, of_one<sinl>, 1.5, 2.4, -1, 1},
    {ScalarOp::kCos, of_one<cosl>, 1.5, 2.5, -1, 1},
    {ScalarOp::kTan, of_one<tanl>, 3.3, 3.5},
    {ScalarOp::kAsin, of_one<asinl>, 0.51, 2.2, -1.5707964, 1.5707964},
    {ScalarOp::kAcos, of_one<acosl>, 0.51, 1.2, 0, 3.1415928},
    {ScalarOp::kAtan, of_one<atanl>, 0.51, 1.6, -1.5707964, 1.5707964},
    {ScalarOp::kSinh, of_one<sinhl>, 2.9, 2.8},
    {ScalarOp::kCosh, of_one<coshl>, 2.9, 2.8, 1},
    {ScalarOp::kTanh, of_one<tanhl>, 2.4, 2.6, -1, 1},
    {ScalarOp::kAsinh, of_one<asinhl>, 0.51, 2.5},
    {ScalarOp::kAcosh, of_one<acoshl>, 0.51, 2.5, 0},
    {ScalarOp::kAtanh, of_one<atanhl>, 0.51, 2.5},
    {ScalarOp::kErf, of_one<erfl>, 4.3, 1.2, -1, 1},
    {ScalarOp::kSigmoid, of_one<sigmoid>, 2.4, 2.2, 0, 1},
    {ScalarOp::kPow, powl, 0.51, 1.2},
    {ScalarOp::kAtan2, atan2l, 0.51, 2.3, -3.1415928, 3.1415928},
};
constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

struct Format {
  int mantissa, least_exponent, most_exponent;  // exponents of the smallest subnormal and of infinity
};
Format format(DType dtype) {
  switch (dtype) {
    case DType::kF64: return {53, -1074, 1024};
    case DType::kF16: return {11, -24, 16};
    case DType::kBF16: return {8, -133, 128};
    default: return {24, -149, 128};
  }
}

double bound(const Function& f, DType dtype) {
  // Computed in f32 and rounded: f16 and bf16 have half an ulp of error plus the small f32 error.
  return dtype == DType::kF32 ? f.f32 : dtype == DType::kF64 ? f.f64 : 0.51;
}

// All exponents evenly, and dense samples around 0, 1 and -1 and where functions saturate.
double sample(std::mt19937_64& random, DType dtype, int64_t i) {
  const uint64_t bits = random();
  if (i % 4 == 0) return std::uniform_real_distribution<double>(-4, 4)(random);
  if (i % 4 == 1) return std::uniform_real_distribution<double>(-110, 110)(random);
  if (i % 4 == 2)
    return (bits & 1 ? 1 : -1) * (1 + std::ldexp(bits & 2 ? 0.7 : -0.3, -static_cast<int>(bits >> 8) % 50));
  return dtype == DType::kF64 ? std::bit_cast<double>(bits)
                              : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

HostTensor samples(DType dtype, int64_t n, uint64_t seed) {
  HostTensor t = make_tensor(dtype, {n});
  std::mt19937_64 random(seed);
  const double special[] = {
      0.0,       -0.0,    1,     -1,     0.5,   -0.5,      INFINITY,  -INFINITY, NAN,
      1e-310,    -1e-310, 1e-40, -1e-40, 88.7,  88.8,      -87.4,     -103.9,    -104.1,
      709.7,     709.8,   -745,  -745.2, 0.625, 4,         3,         2,         1e22,
      0x1p20,    0x1p100, 6e-8,  -2,     -3,    0.9999999, 1.0000001, 1.5707964, 3.1415927,
      6.2831855, 1e-20,   3.93,  3.94,   3.95,  10,        -3.94,     -10};
  for (int64_t i = 0; i < n; ++i)
    set_number(t, i, i < static_cast<int64_t>(std::size(special)) ? special[i] : sample(random, dtype, i));
  return t;
}

double ulps(DType dtype, double got, long double exact) {
  const Format format = ::format(dtype);
  const double rounded =
      dtype == DType::kF64 ? static_cast<double>(exact) : round_float(dtype, static_cast<float>(exact));
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : INFINITY;
  if (got == rounded && std::isinf(got)) return 0;
  const long double limit = ldexpl(1, format.most_exponent);
  if (std::isinf(rounded)) exact = exact < 0 ? -limit : limit;
  if (std::isinf(got)) return fabsl(exact) > limit * (1 - ldexpl(1, -format.mantissa)) ? 1 : INFINITY;
  int exponent;
  frexpl(exact, &exponent);
  return static_cast<double>(fabsl(static_cast<long double>(got) - exact) /
                             ldexpl(1, std::max(exponent - format.mantissa, format.least_exponent)));
}

std::vector<HostTensor> run(const Program& program, const std::vector<HostTensor>& inputs, int width,
                            const std::string& cpu) {
  codegen::cpu::RunCompiledOptions options;
  options.target = cpu_target(cpu);
  try {
    return codegen::cpu::run_compiled(width > 1 ? vectorised(program, width) : program, inputs, options);
  } catch (const Error& e) {
    FAIL(render(e.diagnostic));
    return {};
  }
}

Value call(const Function& f, Value x, Value y) {
  return loop::info(f.op).arity == 1 ? unary(f.op, x) : binary(f.op, x, y);
}

// Each function in a nest of its own.
std::vector<HostTensor> alone(DType dtype, int64_t n, const std::vector<HostTensor>& inputs, int width,
                              const std::string& cpu) {
  ProgramBuilder b;
  const View x = b.input("x", dtype, {n}), y = b.input("y", dtype, {n});
  for (const Function& f : kFunctions) {
    NestBuilder nest = b.nest(std::string(info(f.op).name));
    const Expr i = nest.dim(n);
    nest.store(b.output(std::string(info(f.op).name), dtype, {n}), {i},
               call(f, nest.load(x, {i}), nest.load(y, {i})));
    nest.finish();
  }
  return run(b.program, inputs, width, cpu);
}

// f(x) - g and f(x) * g in one nest, where g is f(x) computed separately.
std::vector<HostTensor> fused(DType dtype, int64_t n, std::vector<HostTensor> inputs,
                              const std::vector<HostTensor>& results, int width, const std::string& cpu) {
  ProgramBuilder b;
  const View x = b.input("x", dtype, {n}), y = b.input("y", dtype, {n});
  for (size_t o = 0; o < std::size(kFunctions); ++o) {
    const Function& f = kFunctions[o];
    const std::string name(info(f.op).name);
    const View g = b.input(name + "_alone", dtype, {n});
    NestBuilder nest = b.nest(name);
    const Expr i = nest.dim(n);
    const Value vx = nest.load(x, {i}), vy = nest.load(y, {i}), vg = nest.load(g, {i}),
                value = call(f, vx, vy);
    nest.store(b.output(name + " - g", dtype, {n}), {i}, value - vg);
    nest.store(b.output(name + " * g", dtype, {n}), {i}, value * vg);
    nest.finish();
    inputs.push_back(results[o]);
  }
  return run(b.program, inputs, width, cpu);
}

struct Worst {
  double ulps = 0, at = 0, with = 0, value = 0;
};

Worst worst_of(const Function& f, const HostTensor& x, const HostTensor& y, const HostTensor& got) {
  Worst worst;
  for (int64_t i = 0; i < element_count(x); ++i) {
    const double vx = get_number(x, i), vy = get_number(y, i), g = get_number(got, i);
    const double e = g < f.least || g > f.most ? INFINITY : ulps(got.dtype, g, f.exact(vx, vy));
    if (e > worst.ulps) worst = {e, vx, vy, g};
  }
  return worst;
}

// How often expressions of f(x) in one nest differ from expressions of the stored f(x).
int64_t differences(const HostTensor& alone, const HostTensor& less, const HostTensor& times) {
  int64_t found = 0;
  for (int64_t i = 0; i < element_count(alone); ++i) {
    const double g = get_number(alone, i);
    if (!std::isfinite(g)) continue;
    found += get_number(less, i) != 0 || get_number(times, i) != round_float(alone.dtype, g * g);
  }
  return found;
}

struct Level {
  std::string cpu;
  int width;
};

}  // namespace

// Prints a table of the largest errors: rows are functions, columns types and processors.
TEST_CASE("elementary functions are exact to the table's units in the last place, in every nest") {
  std::vector<Level> levels = {{"x86-64-v2", 4}, {"x86-64-v3", 8}};
  if (cpu_target("native").avx512) levels.push_back({"x86-64-v4", 16});
  std::string heading = cat(std::string(12, ' '));
  std::vector<std::string> rows;
  for (const Function& f : kFunctions) rows.push_back(std::string(info(f.op).name));
  for (std::string& row : rows) row.resize(12, ' ');
  const auto column = [](std::string text) {
    text.insert(0, text.size() < 10 ? 10 - text.size() : 1, ' ');
    return text;
  };
  for (const DType dtype : kTypes)
    for (const Level& level : levels) {
      const bool wide = dtype == DType::kF32 || dtype == DType::kF64;
      if (!wide && level.cpu == "x86-64-v2") continue;
      const int64_t n = wide ? 20000 : 4000;
      const std::vector<HostTensor> inputs = {samples(dtype, n, 1), samples(dtype, n, 2)};
      const std::vector<HostTensor> got = alone(dtype, n, inputs, level.width, level.cpu);
      // Without FMA, or with results rounded to 16 bits, nothing can be contracted.
      const bool contracts = wide && cpu_target(level.cpu).fma;
      std::vector<HostTensor> both;
      if (contracts) both = fused(dtype, n, inputs, got, level.width, level.cpu);
      heading += column(cat(name(dtype), " ", level.cpu.substr(7)));
      for (size_t o = 0; o < got.size(); ++o) {
        const Function& f = kFunctions[o];
        const std::string where = cat(level.cpu, " ", name(dtype), " ", info(f.op).name);
        const Worst worst = worst_of(f, inputs[0], inputs[1], got[o]);
        CHECK_MESSAGE(worst.ulps <= bound(f, dtype), cat(where, ": ", worst.ulps, " ulp at ", worst.at, ", ",
                                                         worst.with, ": ", worst.value));
        if (contracts) CHECK_MESSAGE(differences(got[o], both.at(2 * o), both.at(2 * o + 1)) == 0, where);
        char number[16];
        std::snprintf(number, sizeof number, "%.2f", worst.ulps);
        rows[o] += column(number);
      }
    }
  MESSAGE("largest errors in ulp\n", heading, "\n", join(rows, "\n"));
}

TEST_CASE("elementary functions of single numbers are as exact as those of vectors") {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    constexpr int64_t n = 6000;
    const std::vector<HostTensor> inputs = {samples(dtype, n, 3), samples(dtype, n, 4)};
    const std::vector<HostTensor> got = alone(dtype, n, inputs, 1, "native");
    for (size_t o = 0; o < got.size(); ++o) {
      const Worst worst = worst_of(kFunctions[o], inputs[0], inputs[1], got[o]);
      CHECK_MESSAGE(worst.ulps <= bound(kFunctions[o], dtype),
                    cat(name(dtype), " ", info(kFunctions[o].op).name, ": ", worst.ulps, " ulp at ", worst.at,
                        ", ", worst.with));
    }
  }
}

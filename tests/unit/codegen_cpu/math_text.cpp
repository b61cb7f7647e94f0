// Accuracy of the elementary functions, in units in the last place, against the C library's long double.
#include <bit>

#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

constexpr double kMostUlp = 4;

long double sigmoid(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

struct Unary {
  ScalarOp op;
  long double (*exact)(long double);
};
const Unary kUnary[] = {
    {ScalarOp::kExp, expl},     {ScalarOp::kExpm1, expm1l}, {ScalarOp::kLog, logl},
    {ScalarOp::kLog1p, log1pl}, {ScalarOp::kSin, sinl},     {ScalarOp::kCos, cosl},
    {ScalarOp::kTan, tanl},     {ScalarOp::kAsin, asinl},   {ScalarOp::kAcos, acosl},
    {ScalarOp::kAtan, atanl},   {ScalarOp::kSinh, sinhl},   {ScalarOp::kCosh, coshl},
    {ScalarOp::kTanh, tanhl},   {ScalarOp::kAsinh, asinhl}, {ScalarOp::kAcosh, acoshl},
    {ScalarOp::kAtanh, atanhl}, {ScalarOp::kErf, erfl},     {ScalarOp::kSigmoid, sigmoid},
};
struct Binary {
  ScalarOp op;
  long double (*exact)(long double, long double);
};
const Binary kBinary[] = {{ScalarOp::kPow, powl}, {ScalarOp::kAtan2, atan2l}};

// All exponents evenly, and the region around 1 densely.
double sample(std::mt19937_64& random, DType dtype, int64_t i) {
  const uint64_t bits = random();
  if (i % 3 == 0) return std::uniform_real_distribution<double>(-3, 3)(random);
  if (i % 3 == 1) return std::uniform_real_distribution<double>(-100, 100)(random);
  return dtype == DType::kF32 ? std::bit_cast<float>(static_cast<uint32_t>(bits))
                              : std::bit_cast<double>(bits);
}

HostTensor samples(DType dtype, int64_t n, uint64_t seed) {
  HostTensor t = make_tensor(dtype, {n});
  std::mt19937_64 random(seed);
  const double special[] = {
      0.0,     -0.0,   1,         -1,        0.5,       -0.5,      INFINITY,  -INFINITY, NAN,     1e-310,
      -1e-310, 1e-40,  -1e-40,    88.7,      88.8,      -87.4,     -103.9,    -104.1,    709.7,   709.8,
      -745,    -745.2, 0.625,     4,         3,         2,         1e22,      0x1p20,    0x1p100, 6e-8,
      -2,      -3,     0.9999999, 1.0000001, 1.5707964, 3.1415927, 6.2831855, 1e-20,
      3.93,    3.94,   3.95,      10,        -3.94,     -10};
  for (int64_t i = 0; i < n; ++i)
    set_number(t, i, i < static_cast<int64_t>(std::size(special)) ? special[i] : sample(random, dtype, i));
  return t;
}

double ulps(DType dtype, double got, long double exact) {
  const double rounded =
      dtype == DType::kF32 ? static_cast<double>(static_cast<float>(exact)) : static_cast<double>(exact);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) && std::isnan(rounded) ? 0 : INFINITY;
  if (got == rounded) return 0;
  const long double limit = dtype == DType::kF32 ? 0x1p128L : 0x1p1024L;
  if (std::isinf(rounded)) exact = exact < 0 ? -limit : limit;
  if (std::isinf(got)) return fabsl(exact) > limit * 0.9999999L ? 1 : INFINITY;
  int exponent;
  frexpl(exact, &exponent);
  const int least = dtype == DType::kF32 ? -148 : -1073, mantissa = dtype == DType::kF32 ? 24 : 53;
  return static_cast<double>(fabsl(static_cast<long double>(got) - exact) /
                             ldexpl(1, std::max(exponent - mantissa, least - 1)));
}

void check_precision(DType dtype, int width, const std::string& cpu, int64_t n) {
  ProgramBuilder b;
  const View x = b.input("x", dtype, {n}), y = b.input("y", dtype, {n});
  auto nest = [&](ScalarOp op, int arity) {
    NestBuilder nb = b.nest(std::string(info(op).name));
    const Expr i = nb.dim(n);
    const Value vx = nb.load(x, {i});
    nb.store(b.output(std::string(info(op).name), dtype, {n}), {i},
             arity == 1 ? unary(op, vx) : binary(op, vx, nb.load(y, {i})));
    nb.finish();
  };
  for (const Unary& u : kUnary) nest(u.op, 1);
  for (const Binary& u : kBinary) nest(u.op, 2);
  const HostTensor tx = samples(dtype, n, 1), ty = samples(dtype, n, 2);
  codegen::cpu::RunCompiledOptions run;
  run.target = cpu_target(cpu);
  std::vector<HostTensor> got;
  try {
    got = codegen::cpu::run_compiled(width > 1 ? vectorised(b.program, width) : b.program, {tx, ty}, run);
  } catch (const Error& e) {
    FAIL(render(e.diagnostic));
  }
  for (size_t o = 0; o < got.size(); ++o) {
    const bool one = o < std::size(kUnary);
    double worst = 0, at = 0, with = 0, value = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double vx = get_number(tx, i), vy = get_number(ty, i), g = get_number(got[o], i);
      const long double exact = one ? kUnary[o].exact(vx) : kBinary[o - std::size(kUnary)].exact(vx, vy);
      const double e = ulps(dtype, g, exact);
      if (e > worst) worst = e, at = vx, with = vy, value = g;
    }
    CHECK_MESSAGE(worst <= kMostUlp,
                  cat(cpu, " ", name(dtype), " x", width, " ", b.program[b.program.outputs[o]].name, ": ",
                      worst, " ulp at ", at, one ? "" : cat(", ", with), ": ", value));
  }
}

}  // namespace

TEST_CASE("elementary functions are within 4 ulp") {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    check_precision(dtype, 16, "native", 60000);
    check_precision(dtype, 8, "x86-64-v3", 6000);
    check_precision(dtype, 4, "x86-64-v2", 6000);
    check_precision(dtype, 1, "native", 6000);
  }
}

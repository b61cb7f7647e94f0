// Every scalar operation on every dtype, scalar and in lanes, on CPUs with and without masks and conversions.
#include "compiler/codegen/cpu/emit.h"
#include "compiler/codegen/null/null.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

const DType kAll[] = {DType::kBool,   DType::kI2,     DType::kI4,         DType::kI8,     DType::kI16,
                      DType::kI32,    DType::kI64,    DType::kU2,         DType::kU4,     DType::kU8,
                      DType::kU16,    DType::kU32,    DType::kU64,        DType::kF4E2M1, DType::kF6E2M3,
                      DType::kF6E3M2, DType::kF8E4M3, DType::kF8E4M3Fnuz, DType::kF8E5M2, DType::kF8E5M2Fnuz,
                      DType::kF8E8M0, DType::kF16,    DType::kBF16,       DType::kTF32,   DType::kF32,
                      DType::kF64};

// Special values first, then random ones.
HostTensor operand(DType dtype, int64_t n, uint32_t seed) {
  HostTensor t = random_tensor(dtype, {n}, seed, -40, 40);
  std::vector<double> special = {0, 1, 2, 3, 7};
  if (is_float(dtype))
    for (double v : {-0.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-3, 1e-8, 300.0, 1e30, (double)INFINITY,
                     -(double)INFINITY, (double)NAN})
      special.push_back(v);
  else if (is_signed(dtype))
    for (double v : {-1.0, -2.0, -128.0, -32768.0, -2147483648.0, -9223372036854775808.0})
      special.push_back(v);
  std::mt19937 random(seed);
  for (size_t i = 0; i < special.size() && static_cast<int64_t>(i) * 2 < n; ++i)
    set_number(t, static_cast<int64_t>(random() % static_cast<uint32_t>(n)), special[i]);
  return t;
}

struct Ops {
  ProgramBuilder b;
  View x, y, z, c;
  NestBuilder n;
  Expr i;
  Value vx, vy, vz, vc;

  Ops(DType dtype, int64_t count)
      : x(b.input("x", dtype, {count})),
        y(b.input("y", dtype, {count})),
        z(b.input("z", dtype, {count})),
        c(b.input("c", DType::kBool, {count})),
        n(b.program, "ops"),
        i(n.dim(count)),
        vx(n.load(x, {i})),
        vy(n.load(y, {i})),
        vz(n.load(z, {i})),
        vc(n.load(c, {i})) {}
  void out(const std::string& name, Value v) {
    n.store(b.output(name, v.dtype(), {b.program[b.program.inputs[0]].shape[0]}), {i}, v);
  }
};

void check_all(Ops& ops, DType dtype, int64_t count, double relative) {
  ops.n.finish();
  const std::vector<HostTensor> inputs = {operand(dtype, count, 1), operand(dtype, count, 2),
                                          operand(dtype, count, 3), random_tensor(DType::kBool, {count}, 4)};
  check_program(ops.b.program, inputs, {relative, "native", {}});
  check_program(vectorised(ops.b.program, 16), inputs, {relative, "native", {}});
  check_program(vectorised(ops.b.program, 8), inputs, {relative, "x86-64-v3", {}});
}

}  // namespace

TEST_CASE("scalar operations of every dtype") {
  for (DType dtype : kAll) {
    CAPTURE(name(dtype));
    Ops o(dtype, 83);
    o.out("copy", o.vx);
    o.out("select", select(o.vc, o.vx, o.vy));
    o.out("eq", eq(o.vx, o.vy));
    o.out("ne", ne(o.vx, o.vy));
    o.out("lt", lt(o.vx, o.vy));
    o.out("le", le(o.vx, o.vy));
    o.out("min", min(o.vx, o.vy));
    o.out("max", max(o.vx, o.vy));
    if (is_bool(dtype)) {
      o.out("not", unary(ScalarOp::kNot, o.vx));
      for (ScalarOp op : {ScalarOp::kAnd, ScalarOp::kOr, ScalarOp::kXor})
        o.out(std::string(info(op).name), binary(op, o.vx, o.vy));
    } else {
      for (ScalarOp op : {ScalarOp::kNeg, ScalarOp::kAbs, ScalarOp::kSign})
        o.out(std::string(info(op).name), unary(op, o.vx));
      for (ScalarOp op :
           {ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kDiv, ScalarOp::kMod, ScalarOp::kRem})
        o.out(std::string(info(op).name), binary(op, o.vx, o.vy));
    }
    if (is_integer(dtype)) {
      o.out("bitnot", unary(ScalarOp::kBitNot, o.vx));
      for (ScalarOp op : {ScalarOp::kBitAnd, ScalarOp::kBitOr, ScalarOp::kBitXor, ScalarOp::kShl,
                          ScalarOp::kShr, ScalarOp::kPow})
        o.out(std::string(info(op).name), binary(op, o.vx, o.vy));
      o.out("fma", o.n.op(ScalarOp::kFma, {o.vx, o.vy, o.vz}));
    }
    if (is_float(dtype)) {
      for (ScalarOp op :
           {ScalarOp::kFloor, ScalarOp::kCeil, ScalarOp::kTrunc, ScalarOp::kRound, ScalarOp::kSqrt,
            ScalarOp::kRsqrt, ScalarOp::kRcp, ScalarOp::kIsNan, ScalarOp::kIsInf})
        o.out(std::string(info(op).name), unary(op, o.vx));
    }
    check_all(o, dtype, 83, dtype == DType::kF64 ? 1e-14 : 3e-7);
  }
}

TEST_CASE("casts between all dtypes") {
  for (DType dtype : kAll) {
    CAPTURE(name(dtype));
    Ops o(dtype, 83);
    for (DType to : kAll) {
      o.out(cat("sat.", name(to)), o.n.cast(o.vx, to, true));
      // Out-of-range float to integer conversion is unspecified.
      if (!(is_float(dtype) && is_integer(to))) o.out(cat("cast.", name(to)), o.n.cast(o.vx, to));
      // The payload of a converted NaN is unspecified.
      const Value number =
          is_float(dtype) ? select(unary(ScalarOp::kIsNan, o.vx), o.n.constant(dtype, 1), o.vx) : o.vx;
      if (byte_size(to) == byte_size(dtype) && info(to).bits == info(dtype).bits && !is_bool(to) &&
          !is_bool(dtype))
        o.out(cat("bits.", name(to)), o.n.bitcast(number, to));
    }
    check_all(o, dtype, 83, 0);
  }
}

TEST_CASE("whole numbers that are clamped to bytes and converted back") {
  Ops o(DType::kF32, 83);
  for (const DType to : {DType::kU8, DType::kI8, DType::kI16, DType::kU16}) {
    const Value rounded = unary(ScalarOp::kRound, o.vx);
    const Value shifted = rounded + o.n.constant(DType::kF32, 3);
    const Value ties = unary(ScalarOp::kRound, rounded * o.n.constant(DType::kF32, 0.5));
    for (const auto& [what, whole] :
         {std::pair("rounded", rounded), std::pair("shifted", shifted), std::pair("ties", ties)}) {
      const Value q = o.n.cast(whole, to, true);
      o.out(cat(what, ".", name(to)), q);
      // 1 / x distinguishes -0 from 0.
      o.out(cat(what, ".", name(to), ".inverse"), unary(ScalarOp::kRcp, o.n.cast(q, DType::kF32)));
      o.out(cat(what, ".", name(to), ".i32"), o.n.cast(q, DType::kI32));
    }
  }
  check_all(o, DType::kF32, 83, 0);
}

TEST_CASE("what was moved before it was clamped, and is moved back, is not moved in a fused multiply-add") {
  Ops o(DType::kF32, 83);
  const auto number = [&](double x) { return o.n.constant(DType::kF32, x); };
  for (const DType to : {DType::kU8, DType::kI8, DType::kI16}) {
    const Value q = o.n.cast(unary(ScalarOp::kRound, o.vx) + number(3), to, true);
    const Value back = o.n.cast(q, DType::kF32) - number(3), elsewhere = o.n.cast(q, DType::kF32) - number(2);
    for (const double beside : {7.5, 0.0, -0.0}) {
      const std::string label = cat(name(to), std::signbit(beside) ? "-" : "", beside);
      const auto fused = [&](Value x) { return o.n.op(ScalarOp::kFma, {x, number(0.7), number(beside)}); };
      // 1 / x distinguishes -0 from 0.
      o.out(cat(label, ".back"), unary(ScalarOp::kRcp, fused(back)));
      o.out(cat(label, ".elsewhere"), fused(elsewhere));
    }
  }
  check_all(o, DType::kF32, 83, 0);
  const Program program = vectorised(o.b.program, 16);
  const auto sources = codegen::null::emit(program, [&](const Nest& nest) {
    return codegen::cpu::emit_kernel(program, nest, cpu_target("x86-64-v4"));
  });
  REQUIRE(sources.size() == 1);
  int found = 0;
  const std::string direct = "sd_fma(__builtin_elementwise_roundeven(";
  for (size_t at = 0; (at = sources[0].kernel.text.find(direct, at)) != std::string::npos; ++at) ++found;
  CHECK(found == 2 * 3 * 2);  // in whole vectors and in the remainder
}

TEST_CASE("look-ups in tables of all bytes") {
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    ProgramBuilder b;
    const View table = b.input("table", dtype, {256}), x = b.input("x", DType::kU8, {83});
    NestBuilder n(b.program, "look up");
    const Expr i = n.dim(83);
    n.store(b.output("y", dtype, {83}), {i}, n.load(table, {n.bind(n.load(x, {i}), 256)}));
    n.finish();
    const std::vector<HostTensor> inputs = {random_tensor(dtype, {256}, 1, -128, 128),
                                            random_tensor(DType::kU8, {83}, 2, 0, 256)};
    for (const int width : {8, 16, 32, 64}) {
      check_program(vectorised(b.program, width), inputs, {0, "native", {}});
      check_program(vectorised(b.program, width), inputs, {0, "x86-64-v3", {}});
    }
  }
}

// Benchmark of the general emitter's nests on one core: test_codegen_cpu -tc="speed*" -ns (not part of a test
// run).
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/schedule/heuristics/loop_nest.h"
#include "tests/unit/codegen_cpu/emit_harness.h"

using namespace emit_test;

namespace {

void measure(const std::string& what, Program program, const std::vector<HostTensor>& inputs,
             double elements) {
  schedule::choose_general(program, cpu_target("native"));
  codegen::cpu::RunCompiledOptions options;
  options.parts = 1;
  codegen::cpu::CompiledProgram compiled(program, options);
  double best = 1e30;
  for (int r = 0; r < 30; ++r) best = std::min(best, compiled.time(inputs));
  std::printf("%-28s %8.1f us  %6.2f Gelem/s   %s\n", what.c_str(), best * 1e6, elements / best * 1e-9,
              to_string(program.nests[0].schedule).c_str());
  if (std::getenv("STRIDEC_SHOW")) std::printf("%s\n", compiled.built().kernels[0].text.c_str());
}

}  // namespace

TEST_CASE("speed of common nests" * doctest::skip()) {
  const int64_t n = 1024;
  const HostTensor x0 = random_tensor(kF32, {n, n}, 1);
  auto program = [&](const std::function<void(ProgramBuilder&, NestBuilder&, View, View)>& body,
                     std::vector<Expr> out = {1024, 1024}) {
    ProgramBuilder b;
    const View x = b.input("x", kF32, {n, n}), o = b.output("o", kF32, std::move(out));
    NestBuilder nb = b.nest("nest");
    body(b, nb, x, o);
    nb.finish();
    return b.program;
  };
  auto map = [&](const std::function<Value(NestBuilder&, Value)>& f) {
    return program([&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
      const auto i = nb.dims(x.shape);
      nb.store(o, i, f(nb, nb.load(x, i)));
    });
  };
  const double all = n * n;
  measure("relu", map([](NestBuilder& nb, Value v) { return max(v, nb.constant(kF32, 0)); }), {x0}, all);
  for (ScalarOp op : {ScalarOp::kExp, ScalarOp::kLog, ScalarOp::kTanh, ScalarOp::kErf, ScalarOp::kSigmoid,
                      ScalarOp::kSin, ScalarOp::kSqrt})
    measure(std::string(info(op).name), map([&](NestBuilder&, Value v) { return unary(op, v); }), {x0}, all);
  measure("gelu", map([](NestBuilder& nb, Value v) {
            return v * nb.constant(kF32, 0.5) *
                   (unary(ScalarOp::kErf, v * nb.constant(kF32, 0.70710678)) + nb.constant(kF32, 1));
          }),
          {x0}, all);
  measure("softmax", program([&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
            const Expr i = nb.dim(n);
            const Value top =
                nb.reduce(Combine::kMax, {n}, [&](const auto& at) { return nb.load(x, {i, at[0]}); });
            const Value sum = nb.reduce(Combine::kSum, {n}, [&](const auto& at) {
              return unary(ScalarOp::kExp, nb.load(x, {i, at[0]}) - top);
            });
            nb.loop({n}, [&](const auto& at) {
              nb.store(o, {i, at[0]}, unary(ScalarOp::kExp, nb.load(x, {i, at[0]}) - top) / sum);
            });
          }),
          {x0}, all);
  measure("layer norm", program([&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
            const Expr i = nb.dim(n);
            const Value scale = nb.constant(kF32, 1.0 / 1024);
            const Value mean =
                nb.reduce(Combine::kSum, {n}, [&](const auto& at) { return nb.load(x, {i, at[0]}); }) * scale;
            const Value var = nb.reduce(Combine::kSum, {n}, [&](const auto& at) {
              const Value d = nb.load(x, {i, at[0]}) - mean;
              return d * d;
            }) * scale;
            const Value r = unary(ScalarOp::kRsqrt, var + nb.constant(kF32, 1e-5));
            nb.loop({n},
                    [&](const auto& at) { nb.store(o, {i, at[0]}, (nb.load(x, {i, at[0]}) - mean) * r); });
          }),
          {x0}, all);
  measure("row sum",
          program(
              [&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
                const Expr i = nb.dim(n);
                nb.store(o, {i}, nb.reduce(Combine::kSum, {n}, [&](const auto& at) {
                  return nb.load(x, {i, at[0]});
                }));
              },
              {1024}),
          {x0}, all);
  measure("column sum",
          program(
              [&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
                const Expr i = nb.dim(n);
                nb.store(o, {i}, nb.reduce(Combine::kSum, {n}, [&](const auto& at) {
                  return nb.load(x, {at[0], i});
                }));
              },
              {1024}),
          {x0}, all);
  measure("transpose", program([&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
            const auto i = nb.dims(o.shape);
            nb.store(o, i, nb.load(x, {i[1], i[0]}));
          }),
          {x0}, all);
  measure("heads",
          program(
              [&](ProgramBuilder&, NestBuilder& nb, View x, View o) {
                const auto i = nb.dims(o.shape);  // [16 heads, 1024, 64] out of [1024, 16 * 64]
                nb.store(o, i, nb.load(x, {i[1], i[0] * 64 + i[2]}));
              },
              {16, 1024, 64}),
          {x0}, all);
}

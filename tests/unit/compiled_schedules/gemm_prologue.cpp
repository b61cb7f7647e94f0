// GEMM prologues as machine code.
#include "compiler/schedule/fusion/gemm_prologue.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/rewrite.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/choose.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// max(x * scale + shift, 0) * w, with scales per column or per row.
Pieces products(int64_t depth, int64_t columns, bool by_row) {
  Pieces p("products");
  const loop::View x = p.input("x", {p.n, depth});
  const loop::View scale = by_row ? p.input("s", {p.n, 1}) : p.weight("s", {depth}, 1);
  const loop::View rows =
      p.map("relu", {x, scale, p.weight("b", {depth}, 2)}, [](const std::vector<loop::Value>& v) {
        return max(v[0] * v[1] + v[2], v[0].nest->constant(DType::kF32, 0));
      });
  p.output("y", p.product(rows, depth, columns, 3));
  return p;
}

}  // namespace

TEST_CASE(
    "rows that a product computes are those that a kernel of their own does, on any number of threads") {
  for (const auto& [depth, columns, by_row] :
       {std::tuple<int64_t, int64_t, bool>{200, 100, false}, {129, 131, true}, {515, 96, false}}) {
    const Pieces p = products(depth, columns, by_row);
    loop::Program after = p.program;
    schedule::fuse(after, {});
    const size_t launches = after.steps.size();
    schedule::fuse_gemm_prologues(after);
    loop::eliminate_dead_code(after);
    REQUIRE(after.steps.size() == launches - 1);
    for (const char* name : {"x86-64-v3", "native"}) {
      const CpuTarget target = cpu_target(name);
      codegen::cpu::RunCompiledOptions one{.target = target, .parts = 1}, three{.target = target};
      loop::Program scheduled = after;
      schedule::choose(scheduled, target, {});
      CHECK(scheduled.nests[0].schedule.kernel.starts_with("gemm"));
      codegen::cpu::CompiledProgram serial(scheduled, one), shared(scheduled, three);
      for (const int64_t n : {0, 1, 7, 64, 333}) {
        CAPTURE(cat(name, " ", depth, " ", columns, " ", n));
        const auto inputs = random_inputs(p.program, {{p.n, n}, {p.m, 1}}, 7);
        const auto want = loop::interpret(p.program, inputs), got = serial.run(inputs);
        CHECK(close(got, want, 1e-5));
        CHECK(shared.run(inputs)[0].bytes == got[0].bytes);
      }
    }
  }
}

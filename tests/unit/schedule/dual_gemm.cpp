#include "compiler/schedule/fusion/dual_gemm.h"

#include <doctest/doctest.h>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

constexpr DType kNarrow = DType::kF16;

struct Gated {
  Pieces p{"gated"};
  int64_t depth, columns;
  View x = p.input("x", {p.n, depth}, kNarrow);

  View weight(const std::string& name, int64_t count, uint32_t seed) {
    const View wide = p.weight(name, {depth, count}, seed);
    const View w = whole(p.program, add_buffer(p.program, {.name = name + ".narrow",
                                                           .dtype = kNarrow,
                                                           .shape = wide.shape,
                                                           .storage = Storage::kParameter,
                                                           .prepacked = true}));
    NestBuilder cast(p.program, "cast");
    const auto all = cast.dims(wide.shape);
    cast.store(w, all, cast.cast(cast.load(wide, all), kNarrow));
    p.program.prepack.push_back(add_nest(p.program, cast.nest()));
    return w;
  }
  static Value sum(NestBuilder& nest, const View& x, const View& w, const std::vector<Expr>& at,
                   int64_t depth) {
    return nest.reduce(Combine::kSum, {depth}, [&](const std::vector<Expr>& k) {
      return nest.cast(nest.load(x, {at[0], k[0]}), DType::kF32) *
             nest.cast(nest.load(w, {k[0], at[1]}), DType::kF32);
    });
  }
  View product(const std::string& name, const View& from, const View& w) {
    const View out = p.temporary(name, {p.n, w.shape[1]}, kNarrow);
    NestBuilder nest(p.program, name);
    const auto at = nest.dims(out.shape);
    nest.store(out, at, nest.cast(sum(nest, from, w, at, depth), kNarrow));
    nest.finish();
    return out;
  }
  // max(gate, 0) * (x w + bias)
  View gate(const View& gate, const View& from, const View& w) {
    const View bias = p.weight("bias", {columns}, 7), out = p.temporary("out", {p.n, columns}, kNarrow);
    NestBuilder nest(p.program, "up");
    const auto at = nest.dims(out.shape);
    const Value up = sum(nest, from, w, at, depth) + nest.load(bias, {at[1]});
    const Value open = nest.op(ScalarOp::kMax, {nest.cast(nest.load(gate, at), DType::kF32),
                                                nest.constant(float_scalar(DType::kF32, 0))});
    nest.store(out, at, nest.cast(open * up, kNarrow));
    nest.finish();
    return out;
  }
};

// Number of dual GEMM launches after the pass.
int paired(const Program& before) {
  verify(before);
  Program after = before;
  schedule::fuse_dual_gemm(after, gpu_target("sm_90a"));
  loop::eliminate_dead_code(after);
  verify(after);
  int pairs = 0;
  for (const Step& step : after.steps)
    if (const auto* launch = std::get_if<Launch>(&step.node))
      pairs += kernels::match_dual_gemm(after[launch->nest]).has_value();
  CHECK(after.steps.size() + static_cast<size_t>(pairs) == before.steps.size());
  schedule::plan_memory(after);
  for (const int64_t n : {0, 1, 5})
    CHECK_MESSAGE(same_results(before, after, {{before.symbols[0].var, n}}), to_string(after));
  return pairs;
}

Program gate_and_up(int64_t depth, int64_t columns,
                    const std::function<void(Gated&, const View&)>& more = {}) {
  Gated g{.depth = depth, .columns = columns};
  const View gate = g.product("gate", g.x, g.weight("wg", columns, 1));
  const View out = g.gate(gate, g.x, g.weight("wu", columns, 2));
  if (more) more(g, gate);
  g.p.output("y", out);
  return g.p.program;
}

// y = t[n] * max(t[n + columns], 0), t = x v
Program halves(int64_t columns, int64_t apart) {
  Gated g{.depth = 32, .columns = columns};
  const View t = g.product("t", g.x, g.weight("v", 2 * columns, 1)),
             out = g.p.temporary("out", {g.p.n, columns}, kNarrow);
  NestBuilder nest(g.p.program, "halves");
  const auto at = nest.dims(out.shape);
  const Value a = nest.cast(nest.load(t, at), DType::kF32),
              b = nest.cast(nest.load(t, {at[0], at[1] + apart}), DType::kF32);
  nest.store(
      out, at,
      nest.cast(a * nest.op(ScalarOp::kMax, {b, nest.constant(float_scalar(DType::kF32, 0))}), kNarrow));
  nest.finish();
  g.p.output("y", out);
  return g.p.program;
}

}  // namespace

TEST_CASE("a gate and what it lets through are one product") {
  CHECK(paired(gate_and_up(64, 128)) == 1);
  CHECK(paired(gate_and_up(40, 24)) == 1);
}

TEST_CASE("halves of one product's columns that meet are one product") {
  CHECK(paired(halves(64, 64)) == 1);
  CHECK(paired(halves(64, 32)) == 1);  // the same columns used twice
}

TEST_CASE(
    "what others read as well, columns that do not fill blocks, other values and other weights stay apart") {
  CHECK(paired(gate_and_up(64, 128, [](Gated& g, const View& gate) { g.p.output("gate", gate); })) == 0);
  CHECK(paired(gate_and_up(64, 12)) == 0);
  CHECK(paired(halves(12, 12)) == 0);
  Gated g{.depth = 64, .columns = 64};
  const View other = g.p.input("other", {g.p.n, 64}, kNarrow), wg = g.weight("wg", 64, 1);
  g.p.output("y", g.gate(g.product("gate", other, wg), g.x, g.weight("wu", 64, 2)));
  CHECK(paired(g.p.program) == 0);
  // Weights that are inputs.
  Gated h{.depth = 64, .columns = 64};
  const View given = h.p.input("given", {64, 64}, kNarrow);
  h.p.output("y", h.gate(h.product("gate", h.x, given), h.x, h.weight("wu", 64, 2)));
  CHECK(paired(h.p.program) == 0);
}

TEST_CASE("the two sums of a pair are known by their text") {
  const char* const kText = R"(program p
  input x f16 [4, 16] ordinal 0
  input w f16 [16, 32] ordinal 1
  output y f32 [4, 16] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 gated (%m<4, %n<16)
      %0 : f32 = reduce sum (%k<16)
        %1 : f16 = load x[%m, %k]
        %2 : f32 = cast %1
        %3 : f16 = load w[%k, %n + 8*(%n//8)]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : f32 = reduce sum (%l<16)
        %7 : f16 = load x[%m, %l]
        %8 : f32 = cast %7
        %9 : f16 = load w[%l, %n + 8*(%n//8) + 8]
        %10 : f32 = cast %9
        %11 : f32 = mul %8 %10
        yield %11
      %12 : f32 = mul %0 %6
      store y[%m, %n] %12
)";
  const auto match = [&](const std::string& from, const std::string& to) {
    std::string text = kText;
    text.replace(text.find(from), from.size(), to);
    const Program program = parse_program(text);
    verify(program);
    Program cleaned = program;
    clean(cleaned, cleaned.nests[0]);
    CHECK(kernels::match_dual_gemm(cleaned.nests[0]).has_value() ==
          kernels::match_dual_gemm(program.nests[0]).has_value());
    return kernels::match_dual_gemm(program.nests[0]);
  };
  const auto pair = match("program p", "program p");
  REQUIRE(pair.has_value());
  CHECK(pair->nest.dims[1].extent.is_const(32));
  CHECK(!match("+ 8*(%n//8) + 8]", "+ 8*(%n//8)]"));
  CHECK(!match("load x[%m, %l]", "load x[%m, 15 - %l]"));
  CHECK(!match("mul %8 %10", "add %8 %10"));
}

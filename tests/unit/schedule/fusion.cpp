#include "compiler/schedule/fusion/fusion.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_join.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

// Fuses, verifies, and compares with the original program on random inputs of these sizes.
Program fused(const Program& before, const Bindings& sizes) {
  Program after = before;
  fuse(after);
  verify(after);
  plan_memory(after);
  CHECK(same_results(before, after, sizes));
  return after;
}

int launches(const Program& program) {
  int count = 0;
  for_each_step(program.steps, [&](const Step& step) { count += std::holds_alternative<Launch>(step.node); });
  return count;
}

int arena_buffers_in_use(const Program& program) {
  std::vector<bool> used(program.buffers.size());
  for_each_step(program.steps, [&](const Step& step) {
    const auto* launch = std::get_if<Launch>(&step.node);
    if (!launch) return;
    for_each_stmt(program[launch->nest].body, [&](const Stmt& stmt) {
      if (const Access* access = access_of(stmt)) used[access->buffer.value] = true;
    });
  });
  int count = 0;
  for (size_t i = 0; i < used.size(); ++i) count += used[i] && program.buffers[i].storage == Storage::kArena;
  return count;
}

}  // namespace

TEST_CASE("a chain of pointwise nests becomes one") {
  Pieces p("chain");
  const View x = p.input("x", {p.n, 7});
  const View a = p.map("a", {x}, [](auto v) { return v[0] * v[0]; });
  const View b = p.map("b", {a, x}, [](auto v) { return v[0] + v[1]; });
  p.output("y", p.map("c", {b}, [](auto v) { return unary(ScalarOp::kExp, -v[0]); }));
  const Program after = fused(p.program, {{p.n, 5}});
  CHECK(launches(after) == 1);
  CHECK(arena_buffers_in_use(after) == 0);
}

TEST_CASE("softmax becomes one nest a row with a local row") {
  Pieces p("softmax");
  const View x = p.input("x", {p.n, 3, p.m});
  p.output("y", p.softmax(x));
  for (int64_t m : {1, 6, 17}) {
    const Program after = fused(p.program, {{p.n, 2}, {p.m, m}});
    CHECK(launches(after) == 1);
    CHECK(arena_buffers_in_use(after) == 0);
  }
}

TEST_CASE("rows of a mask that serve all heads are not merged with the heads' rows") {
  Pieces p("mask");
  const View x = p.input("x", {p.m, 3, p.n, 7}), mask = p.input("mask", {p.n, 7});
  const View most = p.reduce_last(mask, Combine::kMax);
  p.output("y",
           p.map("hide", {p.softmax(x), most}, [](auto v) { return select(lt(v[1], v[0]), v[1], v[0]); }));
  const Program after = fused(p.program, {{p.n, 5}, {p.m, 2}});
  REQUIRE(launches(after) == 2);
  CHECK(after.nests[0].dims.size() == 1);
  CHECK(after.nests[1].dims.size() == 3);
}

TEST_CASE("one number for each of few images is not merged into the nest over the images' rows") {
  Pieces p("images");
  const View x = p.input("x", {4, 49, 96});
  const View factor = p.map("factor", {p.input("seed", {4, 1, 1})}, [](auto v) {
    Value out = v[0];
    for (int i = 0; i < 60; ++i) out = unary(ScalarOp::kExp, -out);
    return out;
  });
  p.output("y", p.softmax(p.map("scale", {x, factor}, [](auto v) { return v[0] * v[1]; })));
  const Program after = fused(p.program, {});
  REQUIRE(launches(after) == 2);
  const auto& launch = std::get<Launch>(after.steps[1].node);
  CHECK(after[launch.nest].dims.size() == 2);
}

TEST_CASE("a condition of rows is computed where it is asked for, a number of rows once") {
  for (const bool condition : {true, false}) {
    Pieces p("rows");
    const View x = p.input("x", {p.m, 3, p.n, 7}), lengths = p.input("lengths", {p.m}, DType::kI64);
    const View of = p.temporary("of", {p.m, 1, p.n, 1}, condition ? DType::kBool : DType::kF32);
    NestBuilder n(p.program, "of");
    const auto at = n.dims({p.m, p.n});
    const Value length = n.load(lengths, {at[0]}), row = n.index_value(at[1]);
    const Value late = lt(length + row, n.index_value(4)), early = lt(row, length - n.index_value(2));
    const Value one = select(late, row, length), other = select(early, row, length);
    n.store(of, {at[0], 0, at[1], 0}, condition ? lt(one, other) : n.cast(one * one + other, DType::kF32));
    n.finish();
    p.output("y", p.map("hide", {x, of},
                        [&](auto v) { return condition ? select(v[1], v[0] + v[0], v[0]) : v[0] * v[1]; }));
    const Program after = fused(p.program, {{p.n, 5}, {p.m, 2}});
    REQUIRE(launches(after) == 1);
    const auto& launch = std::get<Launch>(after.steps[0].node);
    CHECK(after[launch.nest].dims.size() == (condition ? 4 : 2));  // all points, or rows with loops
  }
}

TEST_CASE("bias, activation and residual become the contraction's epilogue") {
  Pieces p("epilogue");
  const View x = p.input("x", {p.n, 5}), w = p.input("w", {5, 6}), bias = p.input("bias", {6}),
             r = p.input("r", {p.n, 6});
  const View mm = p.matmul(x, w);
  const View biased = p.map("bias", {mm, bias}, [](auto v) { return v[0] + v[1]; });
  const View activated = p.map("act", {biased}, [](auto v) { return unary(ScalarOp::kTanh, v[0]); });
  p.output("y", p.map("residual", {activated, r}, [](auto v) { return v[0] + v[1]; }));
  const Program after = fused(p.program, {{p.n, 4}});
  CHECK(launches(after) == 1);
  CHECK(arena_buffers_in_use(after) == 0);
}

TEST_CASE("a name that gets long keeps what most of the work is in") {
  Pieces p("names");
  const View product = p.product(p.input("x", {p.n, 5}), 5, 6, 1);
  Nest matmul = p.program.nests.back();
  p.map("add", {product}, [](auto v) { return v[0] + v[0]; });
  Nest light = p.program.nests.back();
  matmul.name = "matmul";
  CHECK(schedule::fused_name(matmul, light) == "matmul+add");
  light.name = "iota+concat+iota+concat+cast+gather_nd+iota+le+and+select";
  CHECK(schedule::fused_name(light, matmul) == "iota+concat+iota+concat+cast+gather_nd+iota+le+...+matmul");
  CHECK(schedule::fused_name(matmul, light) == "matmul+iota+concat+iota+concat+cast+gather_nd+iota+le+...");
  light.name = "a+...";
  matmul.name = schedule::fused_name(matmul, light);
  CHECK(matmul.name == "matmul+a+...");
  light.name = std::string(60, 'x');
  CHECK(schedule::fused_name(matmul, light) == "matmul+a+...");
  CHECK(schedule::fused_name(light, matmul) == "...+matmul+a+...");
}

TEST_CASE("without epilogue_fusion a contraction's consumers are one nest after it") {
  Pieces p("apart");
  const View x = p.input("x", {p.n, 5}), w = p.input("w", {5, 6}), bias = p.input("bias", {6}),
             r = p.input("r", {p.n, 6});
  const View biased = p.map("bias", {p.matmul(x, w), bias}, [](auto v) { return v[0] + v[1]; });
  p.output("y", p.map("residual", {biased, r}, [](auto v) { return v[0] * v[1]; }));
  const Bindings sizes = {{p.n, 3}};
  Program after = p.program;
  std::vector<Decision> decisions;
  fuse(after, {.decisions = &decisions, .epilogues = false});
  fuse_columns(after, {.epilogues = false});
  loop::eliminate_dead_code(after);
  verify(after);
  plan_memory(after);
  CHECK(same_results(p.program, after, sizes));
  CHECK(launches(after) == 2);
  CHECK(launches(fused(p.program, sizes)) == 1);
  CHECK(std::any_of(decisions.begin(), decisions.end(), [](const Decision& d) {
    return !d.fused && d.reason == "not fused: epilogue_fusion=false";
  }));
}

TEST_CASE("the epilogue of a product over flattened rows works on the dims that they were flattened from") {
  Pieces p("flattened");
  const View x = p.input("x", {p.n * p.m, 5}), w = p.input("w", {5, 6}), r = p.input("r", {p.n, p.m, 6});
  const View rows = loop::reshape(p.matmul(x, w), {p.n, p.m, 6}, p.program.facts);
  const View h = p.map("residual", {rows, r}, [](auto v) { return v[0] + v[1]; });
  p.output("y", p.map("act", {h}, [](auto v) { return unary(ScalarOp::kTanh, v[0]); }));
  for (int64_t m : {1, 3}) {
    const Program after = fused(p.program, {{p.n, 4}, {p.m, m}});
    CHECK(launches(after) == 1);
    CHECK(arena_buffers_in_use(after) == 0);
  }
}

TEST_CASE("the epilogue of a product of groups runs over the groups and their columns") {
  Pieces p("groups");
  const View x = p.input("x", {p.n, 15}), w = p.input("w", {12, 5}), bias = p.input("bias", {12}),
             r = p.input("r", {p.n, 12});
  const View sums = p.temporary("sums", {p.n, 12});
  NestBuilder nest(p.program, "groups");
  const sym::Expr n = nest.dim(p.n), g = nest.dim(3), c = nest.dim(4);
  nest.store(sums, {n, 4 * g + c}, nest.reduce(Combine::kSum, {5}, [&](const std::vector<sym::Expr>& k) {
    return nest.load(x, {n, 5 * g + k[0]}) * nest.load(w, {4 * g + c, k[0]});
  }));
  nest.finish();
  const View biased = p.map("bias", {sums, bias}, [](auto v) { return v[0] + v[1]; });
  p.output("y", p.map("residual", {biased, r}, [](auto v) { return unary(ScalarOp::kTanh, v[0] + v[1]); }));
  const Program after = fused(p.program, {{p.n, 4}});
  CHECK(launches(after) == 1);
  CHECK(arena_buffers_in_use(after) == 0);
}

namespace {

// [n, 12, width] minus a value per group of 4 channels. A channel reads the group of channel index // apart.
Program centred(int64_t channels, int64_t apart, int64_t width) {
  Pieces p("centred");
  const View x = p.input("x", {p.n, channels, width}), scale = p.input("scale", {channels});
  const View sums = p.temporary("sums", {p.n, 3, 1, 1}), y = p.temporary("y", {p.n, channels, width});
  NestBuilder nest(p.program, "sums");
  const sym::Expr n = nest.dim(p.n), g = nest.dim(3);
  nest.store(sums, {n, g, 0, 0}, nest.reduce(Combine::kSum, {4, width}, [&](const std::vector<sym::Expr>& k) {
    return nest.load(x, {n, 4 * g + k[0], k[1]});
  }));
  nest.finish();
  NestBuilder rest(p.program, "rest");
  const sym::Expr rn = rest.dim(p.n), c = rest.dim(channels), m = rest.dim(width);
  rest.store(y, {rn, c, m},
             (rest.load(x, {rn, c, m}) - rest.load(sums, {rn, sym::floordiv(c, apart), 0, 0})) *
                 rest.load(scale, {c}));
  rest.finish();
  p.output("out", y);
  return p.program;
}

}  // namespace

TEST_CASE("for a GPU, what groups of channels come to and what is made of it is one nest a group") {
  Pieces sizes("centred");
  const auto nests = [&](const Program& before) {
    Program after = before;
    fuse(after);
    CHECK(launches(after) == 2);  // on a CPU
    fuse_columns(after);
    loop::eliminate_dead_code(after);
    verify(after);
    plan_memory(after);
    CHECK(same_results(before, after, {{sizes.n, 200}}));
    return launches(after);
  };
  CHECK(nests(centred(12, 4, 16)) == 1);
  // Not fused: 13 channels do not divide into groups of 5, groups of 6 do not match groups of 4, 15 elements
  // are not whole vectors.
  CHECK(nests(centred(13, 5, 16)) == 2);
  CHECK(nests(centred(12, 6, 16)) == 2);
  CHECK(nests(centred(12, 4, 15)) == 2);
}

TEST_CASE("rows that are not the flattened dims in order are not merged") {
  Pieces p("crossed");
  const View x = p.input("x", {p.n * p.m, 5}), w = p.input("w", {5, 6}), r = p.input("r", {p.n, p.m, 6});
  // Row i * m + j is also read at [j, i].
  const View rows = loop::reshape(p.matmul(x, w), {p.n, p.m, 6}, p.program.facts);
  const View turned = loop::reshape(p.matmul(x, w), {p.m, p.n, 6}, p.program.facts);
  const View y = p.map("sum", {loop::permute(turned, {1, 0, 2}), rows}, [](auto v) { return v[0] + v[1]; });
  p.output("y", p.map("residual", {y, r}, [](auto v) { return v[0] + v[1]; }));
  fused(p.program, {{p.n, 4}, {p.m, 3}});
  fused(p.program, {{p.n, 3}, {p.m, 3}});
}

TEST_CASE("a residual that is used twice is stored by its contraction and read by the row nest") {
  Pieces p("residual_norm");
  const View x = p.input("x", {p.n, 5}), w = p.input("w", {5, 6}), r = p.input("r", {p.n, 6});
  const View h = p.map("residual", {p.matmul(x, w), r}, [](auto v) { return v[0] + v[1]; });
  const View normal = p.softmax(h);
  p.output("y", p.map("again", {normal, h}, [](auto v) { return v[0] * v[1]; }));
  const Program after = fused(p.program, {{p.n, 4}});
  CHECK(launches(after) == 2);
  CHECK(arena_buffers_in_use(after) == 1);
}

TEST_CASE("a narrow result is stored as it is, and widened where it is read") {
  Pieces p("widened");
  const View x = p.input("x", {p.n, 5}), w = p.input("w", {5, 6}), v = p.input("v", {6, 6});
  const View bytes = p.map(
      "quantize", {p.matmul(x, w)}, [](auto a) { return a[0].nest->cast(a[0], DType::kI8, true); },
      DType::kI8);
  const View wide = p.map("dequantize", {bytes}, [](auto a) { return a[0].nest->cast(a[0], DType::kF32); });
  const View exp = p.map("exp", {wide}, [](auto a) { return unary(ScalarOp::kExp, a[0]); });
  p.output("y", p.map("residual", {p.matmul(x, p.matmul(w, v)), wide}, [](auto a) { return a[0] + a[1]; }));
  p.output("z", p.reduce_last(exp, Combine::kSum));
  const Program after = fused(p.program, {{p.n, 4}});
  for_each_step(after.steps, [&](const Step& step) {
    const auto* launch = std::get_if<Launch>(&step.node);
    if (!launch) return;
    for_each_stmt(after[launch->nest].body, [&](const Stmt& stmt) {
      const auto* store = std::get_if<Store>(&stmt.node);
      if (store) CHECK(after[store->access.buffer].name != "dequantize");
    });
  });
}

TEST_CASE("an expensive value that two nests over other domains read stays in memory") {
  Pieces p("expensive");
  const View x = p.input("x", {p.n, 4});
  const View e = p.map("exp", {x}, [](auto v) { return unary(ScalarOp::kExp, v[0]); });
  p.output("y", permute_copy(p, e));
  p.output("z", p.reduce_first(e));
  const Program after = fused(p.program, {{p.n, 5}});
  CHECK(arena_buffers_in_use(after) == 1);
}

TEST_CASE("work is not pulled into a contraction's operand") {
  Pieces p("operand");
  const View x = p.input("x", {p.n, 5}), w = p.input("w", {5, 6});
  const View e = p.map("exp", {x}, [](auto v) { return unary(ScalarOp::kExp, v[0]); });
  p.output("y", p.matmul(e, w));
  CHECK(launches(fused(p.program, {{p.n, 4}})) == 2);
}

TEST_CASE("branches of a concat write their slices in place") {
  Pieces p("concat");
  const View x = p.input("x", {p.n, 4}), z = p.input("z", {p.n, 3});
  const View a = p.map("a", {x}, [](auto v) { return v[0] + v[0]; });
  const View b = p.map("b", {z}, [](auto v) { return v[0] * v[0]; });
  const View joined = p.concat({a, b});
  p.output("y", p.matmul(joined, p.input("w", {7, 2})));
  const Program after = fused(p.program, {{p.n, 5}});
  CHECK(launches(after) == 3);
  CHECK(arena_buffers_in_use(after) == 1);
}

TEST_CASE("pieces of what is in memory anyway are chosen between where they are read") {
  for (const auto& [size, cut] : std::vector<std::pair<int64_t, int64_t>>{{8, 4}, {7, 2}, {3, 2}}) {
    Pieces p("turned");
    const View x = p.input("x", {p.n, size});
    const View a = p.map("neg", {slice(x, 1, cut, size - cut, 1)}, [](auto v) { return -v[0]; });
    const View turned = p.concat({a, slice(x, 1, 0, cut, 1)});
    p.output("y", p.map("sum", {x, turned}, [](auto v) { return v[0] + v[1]; }));
    const Program after = fused(p.program, {{p.n, 5}});
    CHECK(launches(after) == 1);
    CHECK(arena_buffers_in_use(after) == 0);
  }
}

TEST_CASE("reflections of reflections become one nest as long as their index stays short") {
  const auto reflected = [](int times) {
    Pieces p("reflected");
    View from = p.input("x", {p.n});
    for (int i = 0; i < times; ++i) {
      NestBuilder nest(p.program, "reflect");
      const View to = p.temporary(cat("t", i), {p.n});
      const auto at = nest.dims(to.shape);
      const sym::Expr away = sym::max(at[0] - 1, 1 - at[0]);
      nest.store(to, at, nest.load(from, {sym::min(away, 2 * (p.n - 1) - away)}));
      nest.finish();
      from = to;
    }
    p.output("y", from);
    return fused(p.program, {{p.n, 5}});
  };
  CHECK(launches(reflected(3)) == 1);
  CHECK(launches(reflected(12)) > 1);
  CHECK(launches(reflected(12)) < 5);
}

TEST_CASE("what costs nothing to compute again is not a second result of a contraction") {
  Pieces p("square");
  const View x = p.input("x", {p.n, 5}), w = p.input("w", {5, 6});
  const View product = p.matmul(x, w);
  const View square = p.map("square", {product}, [](auto v) { return v[0] * v[0]; });
  const View sum = p.reduce_last(square, Combine::kSum);
  p.output("y", p.map("scale", {product, sum}, [](auto v) { return v[0] * v[1]; }));
  const Program after = fused(p.program, {{p.n, 4}});
  CHECK(launches(after) == 2);
  CHECK(arena_buffers_in_use(after) == 1);
}

TEST_CASE("one loop makes of a row all that is made of it") {
  Pieces p("two_results");
  const View soft = p.softmax(p.input("x", {p.n, 7}));
  p.output("soft", soft);
  p.output("double", p.map("double", {soft}, [](auto v) { return v[0] + v[0]; }));
  const Program after = fused(p.program, {{p.n, 4}});
  CHECK(launches(after) == 1);
  int loops = 0;
  for_each_step(after.steps, [&](const Step& step) {
    for (const Stmt& stmt : after[std::get<Launch>(step.node).nest].body)
      loops += std::holds_alternative<For>(stmt.node);
  });
  CHECK(loops == 2);  // the exponentials, and both results
}

TEST_CASE("few values that many points read each stay a nest of their own") {
  Pieces p("table");
  const View few = p.map("exp", {p.input("x", {8})}, [](auto v) { return unary(ScalarOp::kExp, v[0]); });
  const View table = p.input("y", {8, 300});
  const View spread = reshape(few, {8, 1}, p.program.facts);
  p.output("a", p.map("add", {table, spread}, [](auto v) { return v[0] + v[1]; }));
  p.output("b", p.map("mul", {table, spread}, [](auto v) { return v[0] * v[1]; }));
  CHECK(launches(fused(p.program, {})) == 3);
}

TEST_CASE("a gather is inlined into the one nest that reads it") {
  Pieces p("gather");
  const View table = p.input("table", {9, 4}), ids = p.input("ids", {p.n}, DType::kI64);
  const View rows = p.gather(table, ids);
  p.output("y", p.map("scale", {rows}, [](auto v) { return v[0] + v[0]; }));
  const Program after = fused(p.program, {{p.n, 6}});
  CHECK(launches(after) == 1);
}

TEST_CASE("a nest that reads all of a state is not merged with one that overwrites it") {
  const Program before = parse_program(R"(program recurrence
  symbol iteration in 0..2
  symbol iterations in 0..3
  input x f32 [4, 4] ordinal 0
  output y f32 [4] ordinal 0
  arena h f32 [4]
  arena t f32 [4]
  inputs (x)
  outputs (y)
  steps
    nest 0 init (%i0<4)
      %0 : f32 = load x[0, %i0]
      store h[%i0] %0
    while iteration < 3 into iterations
      nest 1 mix (%m0<4)
        %3 : f32 = reduce sum (%r1<4)
          %0 : f32 = load x[%m0, %r1]
          %1 : f32 = load h[%r1]
          %2 : f32 = mul %0 %1
          yield %2
        store t[%m0] %3
      nest 2 carry (%i0<4)
        %0 : f32 = load t[%i0]
        store h[%i0] %0
    nest 3 out (%i0<4)
      %0 : f32 = load h[%i0]
      store y[%i0] %0
)");
  CHECK(launches(fused(before, {})) == 4);
}

TEST_CASE("a nest that reverses a buffer is not merged with one that overwrites it, one that scales it is") {
  for (bool reverse : {true, false}) {
    CAPTURE(reverse);
    const Program before = parse_program(cat(R"(program overwrite
  input x f32 [4] ordinal 0
  output y f32 [4] ordinal 0
  arena t f32 [4]
  inputs (x)
  outputs (y)
  steps
    nest 0 init (%i0<4)
      %0 : f32 = load x[%i0]
      store y[%i0] %0
    nest 1 turn (%i0<4)
      %0 : f32 = load y[)",
                                             reverse ? "3 - %i0" : "%i0", R"(]
      store t[%i0] %0
    nest 2 carry (%i0<4)
      %0 : f32 = load t[%i0]
      %1 : f32 = add %0 %0
      store y[%i0] %1
)"));
    CHECK(launches(fused(before, {})) == (reverse ? 3 : 2));
  }
}

TEST_CASE("random programs keep their meaning") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const Pieces p = random_program(seed);
    Program after = p.program;
    fuse(after);
    verify(after);
    plan_memory(after, seed % 2 ? InPlace::kSums : InPlace::kPointwise);
    for (int64_t n : {0, 1, 3}) CHECK(same_results(p.program, after, {{p.n, n}, {p.m, 4}}));
    CHECK(launches(after) <= launches(p.program));
  }
}

TEST_CASE("a nest may pass one that touches other parts of a buffer, and none that touches the same") {
  for (const int64_t from : {0, 15, 16}) {
    Pieces p("parts");
    const View x = p.input("x", {p.n, 16}), c = p.temporary("c", {p.n, 32});
    const auto part = [&](int64_t offset, ScalarOp op) {
      NestBuilder nest(p.program, "part");
      const sym::Expr i = nest.dim(p.n), j = nest.dim(16);
      nest.store(c, {i, j + offset}, unary(op, nest.load(x, {i, j})));
      nest.finish();
    };
    part(0, ScalarOp::kNeg);
    part(from, ScalarOp::kTanh);
    NestBuilder nest(p.program, "rows");
    const View y = p.temporary("y", {p.n, 16});
    const sym::Expr i = nest.dim(p.n), j = nest.dim(16);
    nest.store(y, {i, j}, nest.load(c, {i, j}));
    nest.finish();
    const Flow flow(p.program, p.program.steps);
    const bool apart = from == 16;
    // Reads the first part; moves past the writer of the second.
    CHECK(may_move(p.program, p.program.steps, flow, 2, 0) == apart);
    // Writes the first part; moves past the second.
    CHECK(may_move(p.program, p.program.steps, flow, 0, 2) == apart);
    CHECK(!may_move(p.program, p.program.steps, flow, 0, 3));  // does not move past its reader
  }
}

TEST_CASE("a producer is computed after writers of other parts of the buffer that it reads") {
  for (const int64_t from : {15, 16}) {
    Pieces p("inlined");
    const View x = p.input("x", {p.n, 16}), c = p.input("c0", {p.n, 32}),
               both = p.temporary("both", {p.n, 32});
    const auto part = [&](const std::string& name, const View& to, int64_t to_at, const View& source,
                          ScalarOp op) {
      NestBuilder nest(p.program, name);
      const sym::Expr i = nest.dim(p.n), j = nest.dim(16);
      nest.store(to, {i, j + to_at}, unary(op, nest.load(source, {i, j})));
      nest.finish();
    };
    part("first", both, 0, c, ScalarOp::kNeg);
    const View t = p.temporary("t", {p.n, 16});
    part("producer", t, 0, both, ScalarOp::kTanh);
    part("second", both, from, x, ScalarOp::kNeg);
    const View y = p.temporary("y", {p.n, 16});
    part("consumer", y, 0, t, ScalarOp::kExp);
    Flow flow(p.program, p.program.steps);
    std::string reason;
    Program after = p.program;
    CHECK(try_inline(after, after.steps, flow, 1, &reason) == (from == 16));
    CHECK(reason == (from == 16 ? "" : "its operand is overwritten before the consumer"));
  }
}

TEST_CASE("an erased step leaves its place until gaps are closed, or nothing") {
  Pieces p("gaps");
  const View x = p.input("x", {p.n, 7});
  const View a = p.map("a", {x}, [](auto v) { return v[0] * v[0]; });
  const View b = p.map("b", {x}, [](auto v) { return v[0] + v[0]; });
  const View c = p.map("c", {a}, [](auto v) { return v[0] + v[0]; });
  for (const Flow::Erased leaves : {Flow::Erased::kNothing, Flow::Erased::kPlace}) {
    const bool place = leaves == Flow::Erased::kPlace;
    const int last = place ? 2 : 1;
    Steps steps = p.program.steps;
    Flow flow(p.program, steps, leaves);
    CHECK(flow.erase(steps, 1) == (place ? 0 : 1));
    CHECK(steps.size() == static_cast<size_t>(last) + 1);
    CHECK(flow.is_gap(1) == place);
    CHECK(flow.readers_between(a.buffer, 0, flow.size()) == std::vector{last});
    CHECK(flow.readers_between(x.buffer, -1, flow.size()) == std::vector{0});
    CHECK(flow.writers_between(b.buffer, -1, flow.size()).empty());
    CHECK(flow.writer_count(b.buffer) == 0);
    flow.close_gaps(steps);
    CHECK(flow.size() == 2);
    REQUIRE(steps.size() == 2);
    CHECK(std::get<Launch>(steps[0].node).nest == NestId(0));
    CHECK(std::get<Launch>(steps[1].node).nest == NestId(2));
    CHECK(flow.readers_between(a.buffer, 0, 2) == std::vector{1});
    const int64_t stamp = flow.stamp(1);
    flow.move(1, 0);
    CHECK(flow.stamp(0) == stamp);
    CHECK(flow.writers_between(c.buffer, -1, 2) == std::vector{0});
    CHECK(flow.writers_between(a.buffer, -1, 2) == std::vector{1});
  }
}

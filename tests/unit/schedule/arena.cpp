#include "compiler/schedule/memory/arena.h"

#include <doctest/doctest.h>

#include <random>

#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/schedule/memory/weight_plan.h"
#include "compiler/sym/text.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

struct Sizes {
  Expr n = sym::var("n"), m = sym::var("m");
  sym::Facts facts;
  Sizes() {
    facts.set_range(n, 1, 64);
    facts.set_range(m, 1, 64);
  }
  static int64_t at(Expr e, int64_t n, int64_t m) {
    return *sym::evaluate(e, [&](Expr var) -> std::optional<int64_t> { return var.name() == "n" ? n : m; });
  }
  ArenaItem item(int first, int last, Expr bytes) const {
    return {.life = {first, last}, .bytes = bytes, .typical_bytes = {at(bytes, 32, 32), at(bytes, 1, 64)}};
  }
};

// u = a b + t, where t is [n, 8] and a is t or another buffer. Returns whether u has t's memory.
bool writes_over_residual(bool reads_it_as_factor, InPlace in_place) {
  Pieces p("residual");
  const loop::View x = p.input("x", {p.n, 8}), w = p.weight("w", {8, 8}, 3);
  const loop::View t = p.map("t", {x}, [](auto v) { return v[0] * v[0]; });
  const loop::View u = p.temporary("u", {p.n, 8});
  loop::NestBuilder nest(p.program, "matmul+add");
  const Expr i = nest.dim(p.n, "i"), j = nest.dim(8, "j");
  const loop::View& a = reads_it_as_factor ? t : x;
  const loop::Value sum = nest.reduce(loop::Combine::kSum, {8}, [&](const std::vector<Expr>& k) {
    return nest.load(a, {i, k[0]}) * nest.load(w, {k[0], j});
  });
  nest.store(u, {i, j}, sum + nest.load(t, {i, j}));
  nest.finish();
  p.output("y", u);
  loop::Program after = p.program;
  plan_memory(after, in_place);
  loop::verify(after);
  CHECK(same_results(p.program, after, {{p.n, 5}, {p.m, 1}}));
  return after[t.buffer].offset == after[u.buffer].offset;
}

// u[n, 8] over t[8, n], which lie alike in memory, written by a loop in each point; the loop reads t at the
// element that it writes, or at another one. Returns whether u has t's memory.
bool a_loop_writes_over(bool elsewhere) {
  Pieces p("loop");
  const loop::View x = p.input("x", {p.n, 8});
  const loop::View t = p.temporary("t", {8, p.n}), u = p.temporary("u", {p.n, 8});
  p.program[t.buffer].strides = {1, 8};
  {
    loop::NestBuilder nest(p.program, "made");
    const Expr i = nest.dim(p.n, "i"), j = nest.dim(8, "j");
    nest.store(loop::whole(p.program, t.buffer), {j, i}, nest.load(x, {i, j}));
    nest.finish();
  }
  {
    loop::NestBuilder nest(p.program, "over");
    const Expr i = nest.dim(p.n, "i");
    nest.loop({8}, [&](const std::vector<Expr>& j) {
      const loop::Value value = nest.load(loop::whole(p.program, t.buffer), {elsewhere ? 7 - j[0] : j[0], i});
      nest.store(u, {i, j[0]}, value + value);
    });
    nest.finish();
  }
  p.output("y", u);
  loop::Program after = p.program;
  plan_memory(after);
  loop::verify(after);
  CHECK(same_results(p.program, after, {{p.n, 5}, {p.m, 1}}));
  return after[t.buffer].offset == after[u.buffer].offset;
}

// u[n, 8]: rows of t[n, 8] over their sums. `after`: a second sum of the row, after u is written.
bool a_row_is_written_over(bool after, InPlace in_place) {
  Pieces p("rows");
  const loop::View x = p.input("x", {p.n, 8});
  const loop::View t = p.map("t", {x}, [](auto v) { return v[0] * v[0]; });
  const loop::View u = p.temporary("u", {p.n, 8}), s = p.temporary("s", {p.n});
  {
    loop::NestBuilder nest(p.program, "over");
    const Expr i = nest.dim(p.n, "i");
    const auto sum = [&] {
      return nest.reduce(loop::Combine::kSum, {8},
                         [&](const std::vector<Expr>& k) { return nest.load(t, {i, k[0]}); });
    };
    const loop::Value first = sum();
    nest.loop({8},
              [&](const std::vector<Expr>& j) { nest.store(u, {i, j[0]}, nest.load(t, {i, j[0]}) / first); });
    nest.store(s, {i}, after ? sum() : first);
    nest.finish();
  }
  p.output("y", u);
  p.output("z", s);
  loop::Program planned = p.program;
  plan_memory(planned, in_place);
  loop::verify(planned);
  CHECK(same_results(p.program, planned, {{p.n, 5}, {p.m, 1}}));
  return planned[t.buffer].offset == planned[u.buffer].offset;
}

}  // namespace

TEST_CASE("a row is written over where all that reads it comes before, or in the same iteration") {
  CHECK(a_row_is_written_over(false, InPlace::kSums));
  CHECK(!a_row_is_written_over(true, InPlace::kSums));
  CHECK(!a_row_is_written_over(false, InPlace::kPointwise));  // threads share the row there
}

TEST_CASE("a loop writes over what the same iteration has read, at the same place in memory") {
  CHECK(a_loop_writes_over(false));
  CHECK(!a_loop_writes_over(true));
}

TEST_CASE("small buffers share the place of a large one that lives at other times") {
  const Sizes s;
  const std::vector<ArenaItem> items = {s.item(0, 1, 512 * s.n), s.item(2, 5, 256 * s.n),
                                        s.item(2, 3, 256 * s.n), s.item(4, 6, 128 * s.n),
                                        s.item(4, 5, 128 * s.n)};
  CHECK(sym::to_string(plan_arena(items, s.facts).bytes) == "512*n");
}

TEST_CASE("buffers alive together never meet, whatever the sizes are") {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto draw = [&](int most) { return static_cast<int>(random() % static_cast<uint32_t>(most + 1)); };
    const Sizes s;
    std::vector<ArenaItem> items;
    for (int i = 0; i < 24; ++i) {
      const int first = draw(30);
      const Expr half = sym::floordiv(s.n + 1, 2) * s.m;
      items.push_back(
          s.item(first, first + draw(6), 64 * (draw(8) * s.n + draw(8) * s.m + draw(4) * half + draw(2))));
    }
    const ArenaPlan plan = plan_arena(items, s.facts);
    for (const auto [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {32, 32}, {64, 1}, {3, 50}}) {
      for (size_t i = 0; i < items.size(); ++i) {
        const int64_t begin = Sizes::at(plan.offsets[i], n, m), end = begin + Sizes::at(items[i].bytes, n, m);
        CHECK(begin >= 0);
        CHECK(end <= Sizes::at(plan.bytes, n, m));
        for (size_t k = 0; k < i; ++k) {
          if (!items[i].life.overlaps(items[k].life)) continue;
          const int64_t other = Sizes::at(plan.offsets[k], n, m);
          CHECK((end <= other || other + Sizes::at(items[k].bytes, n, m) <= begin));
        }
      }
    }
  }
}

TEST_CASE("a run takes the plan that is smallest for its sizes") {
  const Sizes s;
  std::vector<ArenaItem> items = {s.item(0, 1, 64 * s.n), s.item(1, 2, 64 * s.m), s.item(2, 3, 64 * s.m),
                                  s.item(3, 4, 64 * s.n)};
  const std::pair<int64_t, int64_t> sizes[] = {{64, 1}, {32, 64}};
  for (ArenaItem& item : items) {
    item.typical_bytes.clear();
    for (const auto [n, m] : sizes) item.typical_bytes.push_back(Sizes::at(item.bytes, n, m));
  }
  const ArenaPlan plan = plan_arena(items, s.facts);
  CHECK(Sizes::at(plan.bytes, 64, 1) == 64 * 66);
  CHECK(Sizes::at(plan.bytes, 32, 64) == 64 * 128);
  // The offsets are consistent with that plan.
  for (const auto [n, m] : {std::pair<int64_t, int64_t>{64, 1}, {32, 64}, {7, 5}})
    for (size_t i = 0; i + 1 < items.size(); ++i) {
      const int64_t a = Sizes::at(plan.offsets[i], n, m), b = Sizes::at(plan.offsets[i + 1], n, m);
      CHECK((a + Sizes::at(items[i].bytes, n, m) <= b || b + Sizes::at(items[i + 1].bytes, n, m) <= a));
    }
}

TEST_CASE("per-thread memory of a launch shares addresses with buffers of other times") {
  Pieces p("scratch");
  const loop::View x = p.input("x", {p.n, 8}), w = p.weight("w", {8, 8}, 3);
  const loop::View t = p.matmul(x, w), u = p.matmul(t, w);
  p.output("y", u);
  const auto nest_of = [&](size_t step) {
    return std::get<loop::Launch>(p.program.steps.at(step).node).nest;
  };
  std::vector<Scratch> scratch = {{nest_of(0), 100}, {nest_of(1), 0}};
  plan_memory(p.program, InPlace::kSums, scratch);
  loop::verify(p.program);
  const Expr threads = loop::threads_of(p.program);
  const auto at = [&](Expr e, int64_t n, int64_t count) {
    return *sym::evaluate(e, [&](Expr var) -> std::optional<int64_t> { return var == threads ? count : n; });
  };
  // The first result is live in both launches; with it the second one, or the threads' scratch.
  CHECK(at(p.program.arena_bytes, 16, 2) == 512 + 512);
  CHECK(at(p.program.arena_bytes, 16, 10) == 512 + 10 * 128);
  const int64_t t_at = at(p.program[t.buffer].offset, 16, 10), own = at(scratch[0].offset, 16, 10);
  CHECK((own >= t_at + 512 || own + 1280 <= t_at));
}

TEST_CASE("a dim may be called threads") {
  Pieces p("names");
  CHECK(loop::threads_of(p.program).name() == "threads");
  p.program.symbols.push_back({.var = sym::var("threads")});
  CHECK(loop::threads_of(p.program).name() == "threads_");
}

TEST_CASE("a sum is written over the residual that follows it, where no other point reads it") {
  CHECK(writes_over_residual(false, InPlace::kSums));
  CHECK_FALSE(writes_over_residual(true, InPlace::kSums));
  CHECK_FALSE(writes_over_residual(false, InPlace::kPointwise));
}

TEST_CASE("weights that a device copies by lines begin on one") {
  Pieces p("aligned");
  const loop::View x = p.input("x", {p.n, 1024}), small = p.weight("small", {1}, 3),
                   large = p.weight("large", {1024}, 4), other = p.weight("other", {1}, 5);
  const loop::View y = p.map("y", {x, small, other}, [](auto v) { return v[0] * v[1] * v[2]; });
  p.map("z", {y, large}, [](auto v) { return v[0] * v[1]; });
  loop::Program program = std::move(p.program);
  loop::Program* const variant = &program;
  plan_weights({&variant, 1});
  int seen = 0;
  for (const loop::Buffer& buffer : program.buffers)
    if (buffer.storage == loop::Storage::kParameter) {
      CHECK(sym::as_const(buffer.offset).value() % (buffer.name == "large" ? 256 : 64) == 0);
      seen += sym::as_const(buffer.offset).value() % 256 != 0;
    }
  CHECK(seen == 1);  // one small buffer after the other
}

#include "compiler/loop/rewrite.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;

namespace {

struct Fixture {
  Program program;
  Expr n = sym::var("n"), m = sym::var("m");
  Fixture() {
    program.facts.set_range(n, 1, 1000);
    program.facts.set_range(m, 0, 1000);
  }
  View buffer(const std::string& name, std::vector<Expr> shape, DType dtype = DType::kF32) {
    return whole(
        program,
        add_buffer(program, {.name = name, .dtype = dtype, .shape = std::move(shape), .strides = {}}));
  }
  static int count(const Nest& nest) {
    int total = 0;
    for_each_stmt(nest.body, [&](const Stmt&) { ++total; });
    return total;
  }
  template <class T>
  static int count(const Block& block) {
    int total = 0;
    for (const Stmt& s : block) total += std::holds_alternative<T>(s.node);
    return total;
  }
  // The dims of a nest that stores at `index`, as expressions of the element's coordinates %a, %b, ...
  std::string inverted(const std::vector<Expr>& extents, const std::vector<std::string>& index) {
    Nest nest;
    for (size_t i = 0; i < extents.size(); ++i)
      nest.dims.push_back({sym::var(cat("%", "ijkl"[i])), extents[i]});
    Access store;
    std::vector<Expr> at;
    for (size_t i = 0; i < index.size(); ++i) {
      store.index.push_back(sym::parse(index[i]));
      at.push_back(sym::var(cat("%", "abcd"[i])));
    }
    auto found = invert(nest, store, at, program.facts);
    if (!found) return "no";
    return join(nest.dims, ", ", [&](const Dim& d) { return sym::to_string(found->at(d.var)); });
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a store inverts to the point that makes it") {
  CHECK(inverted({n, m}, {"%i", "%j"}) == "%a, %b");
  CHECK(inverted({n, m}, {"%j", "0", "%i + 3"}) == "%c - 3, %a");
  CHECK(inverted({n, 1}, {"%i"}) == "%a, 0");
  CHECK(inverted({n, m}, {"%i"}) == "no");
  CHECK(inverted({n, 64}, {"64*%i + %j"}) == "%a//64, mod(%a, 64)");
  CHECK(inverted({2, 3, 4}, {"12*%i + 4*%j + %k"}) == "%a//12, mod(%a//4, 3), mod(%a, 4)");
  CHECK(inverted({n, m}, {"%i*m + %j"}) == "%a//m, mod(%a, m)");
  CHECK(inverted({n, m}, {"%i + %j"}) == "no");
  CHECK(inverted({n, m}, {"%i + %j", "%j"}) == "%a - %b, %b");
  CHECK(inverted({n}, {"n - 1 - %i"}) == "n - %a - 1");
}

TEST_CASE_FIXTURE(Fixture, "cloning renames what it defines and maps what it uses") {
  View x = buffer("x", {n, m}), y = buffer("y", {n});
  NestBuilder b(program, "rows");
  Expr i = b.dim(n);
  b.store(y, {i}, b.reduce(Combine::kSum, {m}, [&](auto k) { return b.load(x, {i, k[0]}); }));
  const Nest from = program[b.finish()];
  Nest into = from;
  Cloner c(into);
  c.map(from.dims[0].var, sym::var("%z") + 1);
  Block copy = c.clone(from, from.body);
  REQUIRE(copy.size() == 2);
  const Reduce& r = std::get<Reduce>(copy[0].node);
  CHECK(r.dims[0].var != std::get<Reduce>(from.body[0].node).dims[0].var);
  const Load& load = std::get<Load>(r.body[0].node);
  CHECK(load.access.index == std::vector<Expr>{sym::var("%z") + 1, r.dims[0].var});
  CHECK(c.value(std::get<Reduce>(from.body[0].node).results[0]) == r.results[0]);
  CHECK(std::get<Store>(copy[1].node).value == r.results[0]);
}

TEST_CASE_FIXTURE(Fixture, "clean-up: dead code, sharing, invariants, folding") {
  View x = buffer("x", {n, 8}), y = buffer("y", {n, 8});
  NestBuilder b(program, "messy");
  Expr i = b.dim(n);
  b.loop({8}, [&](auto j) {
    Value row = b.load(x, {i, 0});    // hoisted out of the loop
    Value again = b.load(x, {i, 0});  // merged with `row`
    Value one = b.constant(DType::kF32, 0.5) + b.constant(DType::kF32, 0.5);
    Value v = b.load(x, {i, j[0]}) * one;  // removed: times 1
    unary(ScalarOp::kExp, v);              // removed: dead
    b.store(y, {i, j[0]}, v + (row - again));
  });
  Nest nest = program[b.finish()];
  clean(program, nest);
  CHECK(count<Load>(nest.body) == 1);
  CHECK(count<Let>(nest.body) == 1);  // row - again stays: Inf - Inf is not 0
  const For& loop = std::get<For>(nest.body.back().node);
  CHECK(loop.body.size() == 3);
  CHECK(count<Load>(loop.body) == 1);
  CHECK(count<Store>(loop.body) == 1);
  CHECK(count(nest) == 6);
}

TEST_CASE_FIXTURE(Fixture, "small powers are products, others and rounded ones stay") {
  const View x = buffer("x", {n}), y = buffer("y", {n});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI32})
    for (const int exponent : {2, 3, 4, 5}) {
      NestBuilder b(program, "power");
      const Expr i = b.dim(n);
      const Value v = b.cast(b.load(x, {i}), dtype);
      b.store(y, {i}, b.cast(binary(ScalarOp::kPow, v, b.constant(dtype, exponent)), DType::kF32));
      Nest nest = program[b.finish()];
      clean(program, nest);
      int powers = 0, products = 0;
      for_each_stmt(nest.body, [&](const Stmt& s) {
        const auto* let = std::get_if<Let>(&s.node);
        powers += let && let->op == ScalarOp::kPow;
        products += let && let->op == ScalarOp::kMul;
      });
      const bool kept = exponent == 5 || dtype == DType::kF16;
      CHECK(powers == kept);
      CHECK(products == (kept ? 0 : exponent == 2 ? 1 : 2));
    }
}

TEST_CASE_FIXTURE(Fixture, "a load is shared only where no store comes between") {
  View x = buffer("x", {n});
  NestBuilder b(program, "inplace");
  Expr i = b.dim(n);
  Value v = b.load(x, {i});
  b.store(x, {i}, v + v);
  b.store(x, {i}, b.load(x, {i}) * b.load(x, {i}));
  Nest nest = program[b.finish()];
  clean(program, nest);
  CHECK(count<Load>(nest.body) == 2);
}

TEST_CASE_FIXTURE(Fixture, "a loop that may not run keeps its loads, unless they are in bounds anyway") {
  View x = buffer("x", {m}), w = buffer("w", {4}), y = buffer("y", {m});
  NestBuilder b(program, "maybe");
  b.loop({m}, [&](auto j) { b.store(y, {j[0]}, b.load(x, {0}) + b.load(w, {0})); });
  Nest nest = program[b.finish()];
  clean(program, nest);
  CHECK(count<Load>(nest.body) == 1);
  CHECK(std::get<Load>(nest.body[0].node).access.buffer == w.buffer);
}

TEST_CASE_FIXTURE(Fixture, "equal reductions become one; loops of one pass and of none go") {
  View x = buffer("x", {n, 8}), y = buffer("y", {n});
  NestBuilder b(program, "twice");
  Expr i = b.dim(n);
  auto sum = [&] {
    return b.reduce(Combine::kSum, {8}, [&](auto k) { return b.load(x, {i, k[0]}) * b.load(x, {i, k[0]}); });
  };
  Value first = sum(), second = sum();
  Value one = b.reduce(Combine::kMax, {1}, [&](auto k) { return b.load(x, {i, k[0] + 3}); });
  Value none = b.reduce(Combine::kProd, {0, 5}, [&](auto k) { return b.load(x, {k[0], k[1]}); });
  b.store(y, {i}, first * none + second - one);
  Nest nest = program[b.finish()];
  clean(program, nest);
  CHECK(count<Reduce>(nest.body) == 1);
  CHECK(count<Load>(nest.body) == 1);
  CHECK(count<Constant>(nest.body) == 0);
}

TEST_CASE_FIXTURE(Fixture, "conversions that lose nothing cancel; others stay") {
  View h = buffer("h", {n}, DType::kF16), f = buffer("f", {n}, DType::kF32),
       o = buffer("o", {n}, DType::kF16);
  NestBuilder b(program, "casts");
  Expr i = b.dim(n);
  b.store(o, {i}, b.cast(b.cast(b.load(h, {i}), DType::kF32), DType::kF16));
  b.store(f, {i}, b.cast(b.cast(b.load(f, {i}), DType::kF16), DType::kF32));
  Nest nest = program[b.finish()];
  clean(program, nest);
  CHECK(count<Let>(nest.body) == 2);
}

TEST_CASE_FIXTURE(Fixture, "a choice between masked loads and what their fills give is the loads") {
  const View x = buffer("x", {n}), y = buffer("y", {n});
  const auto kept = [&](double fill, double otherwise, int64_t reach) {
    NestBuilder b(program, "choice");
    const Expr i = b.dim(n);
    const Value loaded = b.load({.buffer = x.buffer, .index = {i + 1}, .mask = sym::lt(i + reach, n)},
                                float_scalar(DType::kF32, fill));
    b.store(y, {i},
            select(b.index_value(sym::lt(i + 1, n), DType::kBool), loaded + loaded,
                   b.constant(DType::kF32, otherwise)));
    Nest nest = program[b.finish()];
    clean(program, nest);
    clean(program, nest);
    int selects = 0;
    for_each_stmt(nest.body, [&](const Stmt& s) {
      if (const auto* let = std::get_if<Let>(&s.node)) selects += let->op == ScalarOp::kSelect;
    });
    return selects == 1;
  };
  CHECK(!kept(0, 0, 1));
  CHECK(!kept(3, 6, 1));
  CHECK(kept(3, 3, 1));
  CHECK(kept(0, -0.0, 1));
  CHECK(kept(0, 0, 2));
}

TEST_CASE_FIXTURE(Fixture, "comparisons of indices become conditions that facts decide") {
  View x = buffer("x", {n}), y = buffer("y", {n});
  NestBuilder b(program, "bounds");
  Expr i = b.dim(n);
  Value inside = lt(b.index_value(i), b.index_value(n));
  b.store(y, {i}, select(inside, b.load(x, {i}), b.constant(DType::kF32, 7)));
  Nest nest = program[b.finish()];
  clean(program, nest);
  clean(program, nest);
  CHECK(count(nest) == 2);
}

TEST_CASE_FIXTURE(Fixture, "compact drops what nothing reaches") {
  View x = buffer("x", {n}), dead = buffer("dead", {n}), y = buffer("y", {n});
  Steps nowhere;
  auto copy = [&](View from, View to, Steps* steps) {
    NestBuilder b(program, "copy");
    Expr i = b.dim(n);
    b.store(to, {i}, b.load(from, {i}));
    return b.finish(steps);
  };
  copy(x, dead, &nowhere);
  copy(x, y, nullptr);
  program.inputs = {x.buffer};
  program.outputs = {y.buffer};
  eliminate_dead_code(program);
  CHECK(program.buffers.size() == 2);
  CHECK(program.nests.size() == 1);
  CHECK(program[program.outputs[0]].name == "y");
  CHECK(std::get<Store>(program.nests[0].body[1].node).access.buffer == program.outputs[0]);
}

TEST_CASE_FIXTURE(Fixture, "renumber gives names and ids in order") {
  View x = buffer("x", {n, m}), y = buffer("y", {n});
  NestBuilder b(program, "rows");
  Expr i = b.dim(n, "row");
  b.constant(DType::kF32, 1);
  b.store(y, {i}, b.reduce(Combine::kSum, {m}, [&](auto k) { return b.load(x, {i, k[0]}); }));
  Nest nest = program[b.finish()];
  nest.schedule.directives = {{"vectorize", {i.name(), "16"}}};
  eliminate_dead(nest);
  renumber(nest);
  CHECK(nest.dims[0].var == sym::var("%i0"));
  CHECK(nest.values.size() == 2);
  CHECK(nest.schedule.directives[0].args[0] == "%i0");
  CHECK(std::get<Reduce>(nest.body[0].node).dims[0].var == sym::var("%i1"));
}

#include "compiler/loop/analysis.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/loop/rewrite.h"
#include "compiler/sym/text.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;

namespace {

struct Fixture {
  Program program;
  Expr b = symbol("b"), h = symbol("h"), w = symbol("w");
  Expr symbol(const char* name) {
    Expr e = sym::var(name);
    program.facts.set_range(e, 1, 4096);
    return e;
  }
  View buffer(const std::string& name, std::vector<Expr> shape, DType dtype = DType::kF32) {
    return whole(
        program,
        add_buffer(program, {.name = name, .dtype = dtype, .shape = std::move(shape), .strides = {}}));
  }
  const Nest& matmul(Expr m, Expr n, Expr k, const std::string& suffix = "") {
    View a = buffer("a" + suffix, {m, k}), c = buffer("w" + suffix, {k, n}), y = buffer("y" + suffix, {m, n});
    NestBuilder t(program, "matmul" + suffix);
    auto i = t.dims(y.shape);
    Value sum = t.reduce(Combine::kSum, {k},
                         [&](auto r) { return t.load(a, {i[0], r[0]}) * t.load(c, {r[0], i[1]}); });
    t.store(y, i, max(sum, t.constant(DType::kF32, 0)));
    return program[t.finish()];
  }
  static std::string roles(const std::optional<Contraction>& c) {
    if (!c) return "no contraction";
    auto names = [](const std::vector<Dim>& dims) {
      return join(dims, " ", [](const Dim& d) { return d.var.name(); });
    };
    return cat("batch: ", names(c->batch), "; m: ", names(c->m), "; n: ", names(c->n), "; k: ", names(c->k));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "strides of accesses, and their cost") {
  const Nest& nest = matmul(b, 64, 32);
  auto c = classify_contraction(nest);
  REQUIRE(c);
  sym::Facts facts = facts_of(program, nest);
  const Access& a = c->a.plain->access;
  CHECK(offset_of(program, a) == 32 * nest.dims[0].var + c->k[0].var);
  CHECK(*stride_of(program, a, nest.dims[0].var, facts) == Expr(32));
  CHECK(*stride_of(program, a, nest.dims[1].var, facts) == Expr(0));
  CHECK(!stride_of(program, {.buffer = a.buffer, .index = {sym::floordiv(nest.dims[0].var, 2), 0}},
                   nest.dims[0].var, facts));
  Cost cost = cost_of(program, nest);
  CHECK(cost.points == 64 * b);
  CHECK(cost.steps == 64 * b + 64 * 32 * b);
  CHECK(cost.flops == 2 * 64 * 32 * b + 64 * b);
  CHECK(cost.bytes_read == 4 * (32 * b + 64 * 32));
  CHECK(cost.bytes_written == 4 * 64 * b);
  CHECK(effects_of(nest).reads.size() == 2);
}

TEST_CASE_FIXTURE(Fixture, "a factor that is computed counts once for each of its elements") {
  const View x = buffer("x", {b, 32}), w = buffer("w", {64, 32}), y = buffer("y", {b, 64});
  NestBuilder t(program, "matmul");
  const auto i = t.dims(y.shape);
  t.store(y, i, t.reduce(Combine::kSum, {32}, [&](const std::vector<Expr>& k) {
    const Value v = t.load(x, {i[0], k[0]});
    return v * v * t.load(w, {i[1], k[0]});
  }));
  CHECK(cost_of(program, program[t.finish()]).flops == 2 * 64 * 32 * b + 32 * b);
}

TEST_CASE_FIXTURE(Fixture, "a gather loads as many rows as it has indices") {
  const View table = buffer("table", {100000, 64}), ids = buffer("ids", {b}, DType::kI64),
             y = buffer("y", {b, 64});
  NestBuilder t(program, "gather");
  const auto i = t.dims(y.shape);
  t.store(y, i, t.load(table, {t.bind(t.load(ids, {i[0]}), 100000), i[1]}));
  const Cost cost = cost_of(program, program[t.finish()]);
  CHECK(sym::simplify(cost.bytes_read, program.facts) == 4 * 64 * b + 8 * b);
}

TEST_CASE_FIXTURE(Fixture, "convolutions of all kinds are contractions") {
  auto conv = [&](int groups, bool depthwise) {
    int64_t ci = depthwise ? 1 : 8, co = depthwise ? 1 : 16;
    View x = buffer("x", {b, groups, ci, h, w}), f = buffer("f", {groups, co, ci, 3, 3}),
         y = buffer("y", {b, groups, co, h, w});
    View padded = *pad(x, {0, 0, 0, 1, 1}, {0, 0, 0, 1, 1}, float_scalar(DType::kF32, 0));
    NestBuilder t(program, "conv");
    std::vector<Expr> i = {t.dim(b, "n"), t.dim(groups, "g"), t.dim(co, "co"), t.dim(h, "y"), t.dim(w, "x")};
    t.store(y, i, t.reduce(Combine::kSum, {ci, 3, 3}, [&](auto r) {
      return t.load(padded, {i[0], i[1], r[0], i[3] + r[1], i[4] + r[2]}) *
             t.load(f, {i[1], i[2], r[0], r[1], r[2]});
    }));
    return roles(classify_contraction(program[t.finish()]));
  };
  CHECK(conv(4, false) == "batch: %g1; m: %n0 %y3 %x4; n: %co2; k: %r5 %r6 %r7");
  CHECK(conv(1, false) == "batch: ; m: %n0 %y3 %x4; n: %co2; k: %r5 %r6 %r7");
  CHECK(conv(32, true) == "batch: %g1; m: %n0 %y3 %x4; n: ; k: %r5 %r6 %r7");
}

TEST_CASE_FIXTURE(Fixture, "transposed convolution: a mask on divisibility") {
  View x = buffer("x", {b, 8, h}), f = buffer("f", {8, 16, 4}), y = buffer("y", {b, 16, 2 * h});
  NestBuilder t(program, "deconv");
  std::vector<Expr> i = {t.dim(b, "n"), t.dim(16, "co"), t.dim(2 * h, "y")};
  t.store(y, i, t.reduce(Combine::kSum, {8, 4}, [&](auto r) {
    Expr at = i[2] + 1 - r[1];
    Access a = access(x, {i[0], r[0], sym::floordiv(at, 2)});
    a.mask =
        sym::logical_and(sym::eq(sym::mod(at, 2), 0), sym::logical_and(sym::ge(at, 0), sym::lt(at, 2 * h)));
    return t.load(a, float_scalar(DType::kF32, 0)) * t.load(f, {r[0], i[1], r[1]});
  }));
  CHECK(roles(classify_contraction(program[t.finish()])) == "batch: ; m: %n0 %y2; n: %co1; k: %r3 %r4");
}

TEST_CASE_FIXTURE(Fixture, "integers, quantised weights, and what is not a contraction") {
  View x = buffer("x", {b, 32}, DType::kU8), q = buffer("q", {32, 8}, DType::kI8), s = buffer("s", {8}),
       y = buffer("y", {b, 8}, DType::kI32);
  NestBuilder t(program, "int8");
  auto i = t.dims(y.shape);
  Value zero = t.constant(DType::kI32, 3);
  t.store(y, i, t.reduce(Combine::kSum, {32}, [&](auto r) {
    return (t.cast(t.load(x, {i[0], r[0]}), DType::kI32) - zero) *
           t.cast(t.load(q, {r[0], i[1]}), DType::kI32);
  }));
  auto c = classify_contraction(program[t.finish()]);
  REQUIRE(c);
  CHECK(c->accumulate == DType::kI32);
  CHECK(c->a.plain == nullptr);
  CHECK(c->a.slice.size() == 4);
  CHECK(c->b.plain != nullptr);

  View z = buffer("z", {b});
  NestBuilder mean(program, "mean");
  Expr r = mean.dim(b);
  Value scale = mean.load(s, {0});
  mean.store(z, {r}, mean.reduce(Combine::kSum, {8}, [&](auto k) { return mean.load(s, {k[0]}) * scale; }));
  CHECK(!classify_contraction(program[mean.finish()]));
}

TEST_CASE_FIXTURE(Fixture, "equal kernels have equal texts") {
  std::string first = canonical_text(program, matmul(b, 64, 32));
  CHECK(canonical_text(program, matmul(h, 64, 32, "2")) == first);
  CHECK(canonical_text(program, matmul(64, b, 32, "3")) != first);
  CHECK(canonical_text(program, matmul(b, 64, 33, "4")) != first);
  program.facts.set_divisible(w, 8);
  CHECK(canonical_text(program, matmul(w, 64, 32, "5")) != first);
}

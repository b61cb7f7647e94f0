#include "compiler/schedule/layout/align_rows.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

// y = (x w) w in 16 bits: x [n, width], w [width, width] a weight or an input; the first GEMM's result is in
// scratch.
Program products(Expr width, bool constant, DType dtype = DType::kF16) {
  Pieces p("products");
  const View x = p.input("x", {p.n, width}, dtype);
  View w = p.input("w", {width, width}, dtype);
  if (constant) {
    const View wide = p.weight("v", {width.value(), width.value()}, 3);
    w = whole(p.program, add_buffer(p.program, {.name = "narrow",
                                                .dtype = dtype,
                                                .shape = wide.shape,
                                                .storage = Storage::kParameter,
                                                .prepacked = true}));
    NestBuilder cast(p.program, "cast");
    const auto at = cast.dims(wide.shape);
    cast.store(w, at, cast.cast(cast.load(wide, at), dtype));
    p.program.prepack.push_back(add_nest(p.program, cast.nest()));
  }
  const auto product = [&](const View& a, const View& b, const std::string& name) {
    NestBuilder nest(p.program, name);
    const auto at = nest.dims({a.shape[0], b.shape[1]});
    const Value sum = nest.reduce(Combine::kSum, {width}, [&](const std::vector<Expr>& k) {
      return nest.cast(nest.load(a, {at[0], k[0]}), DType::kF32) *
             nest.cast(nest.load(b, {k[0], at[1]}), DType::kF32);
    });
    const View out = p.temporary("t_" + name, {a.shape[0], b.shape[1]}, dtype);
    nest.store(out, at, nest.cast(sum, dtype));
    nest.finish();
    return out;
  };
  p.output("y", product(product(x, w, "first"), w, "second"));
  verify(p.program);
  return p.program;
}

Program padded(const Program& program) {
  Program after = program;
  schedule::align_rows(after);
  verify(after);
  return after;
}

const Buffer* find(const Program& program, const std::string& name) {
  for (const Buffer& b : program.buffers)
    if (b.name == name) return &b;
  return nullptr;
}

}  // namespace

TEST_CASE("rows of scratch, weights and inputs that are read often begin at multiples of 16 bytes") {
  const Program before = products(131, true);
  Program after = padded(before);
  CAPTURE(to_string(after));
  CHECK(find(after, "t_first")->strides == std::vector<Expr>{136, 1});
  CHECK(find(after, "narrow.padded")->strides == std::vector<Expr>{136, 1});
  CHECK(find(after, "x.padded")->strides == std::vector<Expr>{136, 1});
  CHECK(after.steps.size() == before.steps.size() + 1);
  CHECK(after.prepack.size() == before.prepack.size() + 1);  // one copy of the weight for both GEMMs
  schedule::plan_memory(after);
  for (const int64_t n : {0, 1, 7})
    CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), 1}}));
}

TEST_CASE("buffers that are read too rarely, would grow too much or are aligned already stay") {
  CHECK(padded(products(128, true)).buffers.size() == products(128, true).buffers.size());
  const Program few = padded(products(61, true));  // an input that 61 columns of results read
  CHECK(find(few, "x.padded") == nullptr);
  CHECK(find(few, "t_first")->strides == std::vector<Expr>{64, 1});
  const Program short_rows = padded(products(9, true));  // padding rows to 16 would nearly double them
  CHECK(find(short_rows, "t_first")->strides == std::vector<Expr>{9, 1});
  const Program wide = padded(products(131, true, DType::kF32));
  CHECK(find(wide, "x.padded") == nullptr);
  CHECK(find(wide, "t_first")->strides == std::vector<Expr>{132, 1});
}

TEST_CASE("rows of unknown length are padded to what they turn out to need") {
  const Program before = products(sym::var("m"), false);
  Program after = padded(before);
  const Expr pitch = sym::align_up(sym::var("m"), 8);
  CHECK(find(after, "t_first")->strides == std::vector<Expr>{pitch, 1});
  schedule::plan_memory(after);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {3, 8}, {5, 13}, {0, 3}, {2, 0}})
    CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
}

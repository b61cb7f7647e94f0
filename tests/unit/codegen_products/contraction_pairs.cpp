// Products of bytes by weights of 7 bits on CPUs without an instruction for four products.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "tests/support/contraction_check.h"
#include "tests/support/contraction_harness.h"

using namespace stridec;
using loop::NestBuilder;
using loop::Program;
using loop::Storage;
using loop::View;
using sym::Expr;

namespace {

// out[m, n] = sum over k of x[m, k] * w[k, n], x of [240, 255] and w of `most` and -most, in stripes.
test::Case product(int64_t m, int64_t n, int64_t k, int most, bool replaceable = false) {
  Program program;
  auto bytes = std::make_shared<std::vector<uint8_t>>();
  for (int64_t i = 0; i < k * n; ++i)
    bytes->push_back(static_cast<uint8_t>(static_cast<int8_t>(i % n % 3 ? most : -most)));
  loop::Buffer buffer{.name = "w", .dtype = DType::kI8, .storage = Storage::kParameter};
  buffer.shape = {k, n};
  buffer.weight = {bytes, bytes->data(), bytes->size()};
  buffer.replaceable = replaceable;
  const View w = loop::whole(program, loop::add_buffer(program, std::move(buffer)));
  const View x = test::buffer(program, "x", {m, k}, Storage::kInput, DType::kU8);
  const View out = test::buffer(program, "out", {m, n}, Storage::kArena, DType::kI32);
  NestBuilder nb(program, "product");
  const Expr i = nb.dim(m), j = nb.dim(n);
  nb.store(out, {i, j}, nb.reduce(loop::Combine::kSum, {k}, [&](const std::vector<Expr>& at) {
    const auto high = nb.constant(loop::int_scalar(DType::kU8, 240));
    const auto a = loop::binary(loop::ScalarOp::kBitOr, nb.load(x, {i, at[0]}), high);
    return nb.cast(a, DType::kI32) * nb.cast(nb.load(w, {at[0], j}), DType::kI32);
  }));
  const loop::NestId id = nb.finish();
  return {std::move(program), id};
}

bool in_pairs(const test::Case& c, const char* target) {
  const auto plans = schedule::contraction_space(c.program, c.program[c.nest], cpu_target(target));
  REQUIRE(!plans.empty());
  return std::any_of(plans.begin(), plans.end(),
                     [](const auto& ranked) { return ranked.plan.kernel->pairs; });
}

}  // namespace

TEST_CASE("bytes by weights of at most 64 are summed in pairs, which do not overflow") {
  for (auto [m, n, k] : {std::array{1, 17, 5}, {2, 64, 64}, {13, 50, 20}, {33, 100, 67}})
    test::check(product(m, n, k, 64));
}

TEST_CASE("pairs are for weights that are known and small, on CPUs that have no better instruction") {
  CHECK(in_pairs(product(4, 64, 64, 64), "x86-64-v3"));
  CHECK(in_pairs(product(4, 64, 64, 64), "x86-64-v4"));
  CHECK_FALSE(in_pairs(product(4, 64, 64, 64), "znver4"));
  CHECK_FALSE(in_pairs(product(4, 64, 64, 64), "x86-64-v2"));
  CHECK_FALSE(in_pairs(product(4, 64, 64, 65), "x86-64-v3"));
  CHECK_FALSE(in_pairs(product(4, 64, 64, 64, true), "x86-64-v3"));
}

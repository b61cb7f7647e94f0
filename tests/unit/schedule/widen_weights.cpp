#include "compiler/schedule/algebra/widen_weights.h"

#include <doctest/doctest.h>

#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

// y = x times f16(w * s); x is f16, or f32 rounded to f16: [3, 8] x [8, 5].
Program product(bool data_is_rounded) {
  Pieces p("product");
  const View w = p.weight("w", {8, 5}, 1), s = p.weight("s", {5}, 2);
  const View x = p.input("x", {3, 8}, data_is_rounded ? DType::kF32 : DType::kF16),
             y = p.temporary("y", {3, 5});
  NestBuilder n(p.program, "product");
  const auto at = n.dims({3, 5});
  n.store(y, at, n.reduce(Combine::kSum, {8}, [&](const std::vector<Expr>& k) {
    Value data = n.load(x, {at[0], k[0]});
    if (data_is_rounded) data = n.cast(data, DType::kF16);
    const Value weight = n.load(w, {k[0], at[1]}) * n.load(s, {at[1]});
    return n.cast(data, DType::kF32) * n.cast(n.cast(weight, DType::kF16), DType::kF32);
  }));
  n.finish();
  p.output("out", y);
  return p.program;
}

int roundings(const Program& program) {
  int found = 0;
  for (const Nest& nest : program.nests)
    for_each_stmt(nest.body, [&](const Stmt& stmt) {
      const auto* let = std::get_if<Let>(&stmt.node);
      found += let && nest.values[let->result.value].dtype == DType::kF16;
    });
  return found;
}

}  // namespace

TEST_CASE("weights are not rounded on their way to a product in f32, data are") {
  for (const bool data_is_rounded : {false, true}) {
    const Program before = product(data_is_rounded);
    Program after = before;
    widen_weights(after);
    verify(after);
    CHECK(roundings(before) == 1 + data_is_rounded);
    CHECK(roundings(after) == data_is_rounded);
    const auto inputs = random_inputs(before, {}, 1);
    CHECK(close(interpret(before, inputs), interpret(after, inputs), 2e-3));
    CHECK(!close(interpret(before, inputs), interpret(after, inputs), 1e-7));
  }
}

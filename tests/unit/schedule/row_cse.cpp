#include "compiler/schedule/algebra/row_cse.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using sym::Expr;

namespace {

// Resizes x [rows, columns, 8] bilinearly to m rows and 2 * columns columns; `rows` may be an expression of
// n.
Program shown(Expr (*rows)(Expr n, Expr m), bool last_axis = true) {
  Pieces p("shown");
  const Expr in = rows(p.n, p.m);
  const View x = p.input("x", {in, p.n, 8});
  p.input("like", {p.m});
  NestBuilder nest(p.program, "show");
  const View out = p.temporary("t", {p.m, 2 * p.n, 8});
  const auto at = nest.dims(out.shape);
  const Value one = nest.constant(DType::kF32, 1), size = nest.index_value(2 * p.m, DType::kF32);
  const auto clamp = [](Expr i, Expr extent) { return sym::max(sym::min(i, extent - 1), 0); };
  const Expr row = sym::floordiv((2 * at[0] + 1) * in - p.m, 2 * p.m), column = sym::floordiv(at[1], 2);
  const Value down = nest.index_value(sym::mod((2 * at[0] + 1) * in - p.m, 2 * p.m), DType::kF32) / size;
  const Value right = nest.index_value(sym::mod(at[1], 2), DType::kF32) * nest.constant(DType::kF32, 0.5);
  const auto along = [&](Expr r) {
    const auto load = [&](Expr c) { return nest.load(x, {clamp(r, in), clamp(c, p.n), at[2]}); };
    return last_axis ? load(column) * (one - right) + load(column + 1) * right : load(column);
  };
  nest.store(out, at, along(row) * (one - down) + along(row + 1) * down);
  nest.finish();
  p.output("y", out);
  return p.program;
}

void check_same(const Program& before, Program after) {
  loop::verify(after);
  schedule::plan_memory(after);
  const Expr n = sym::var("n"), m = sym::var("m");
  for (int64_t in : {1, 2, 7, 31})
    for (int64_t out : {1, 3, 20}) CHECK(same_results(before, after, {{n, in}, {m, out}}));
}

}  // namespace

TEST_CASE("interpolation along two axes is interpolation of rows, then of what came out") {
  for (const auto rows :
       {+[](Expr n, Expr) { return n; }, +[](Expr n, Expr m) { return sym::floordiv(n + m, 3) + 1; }}) {
    const Program before = shown(rows);
    Program after = before;
    std::vector<schedule::Decision> decisions;
    schedule::eliminate_common_rows(after, &decisions);
    REQUIRE(decisions.size() == 1);
    CHECK(decisions[0].producer == "show");
    CHECK(after.nests.size() == before.nests.size() + 1);
    const std::string text = to_string(after);
    // Each nest has two loads: of two columns of a row, then of two rows.
    const auto loads = [&](const std::string& nest) {
      const std::string body = text.substr(text.find(cat(" ", nest, " (")));
      const std::string own = body.substr(0, body.find("store"));
      size_t count = 0;
      for (size_t at = 0; (at = own.find(" load ", at)) != std::string::npos; ++at) ++count;
      return count;
    };
    CHECK(loads("\"show rows\"") == 2);
    CHECK(loads("show") == 2);
    check_same(before, after);
  }
}

TEST_CASE("rows are not computed before where it saves nothing") {
  // No reuse: as many rows as output rows; or nothing to compute except the load.
  for (const Program& before :
       {shown([](Expr, Expr m) { return 2 * m; }), shown([](Expr n, Expr) { return n; }, false)}) {
    Program after = before;
    schedule::eliminate_common_rows(after);
    CHECK(after.nests.size() == before.nests.size());
  }
}

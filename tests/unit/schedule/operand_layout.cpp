#include "compiler/schedule/layout/operand_layout.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

// Windows of 2 x 3 points of an image of 8 x 6, as rows of a GEMM operand.
Program windows_by_weights(int64_t rows_read, bool read_twice, int64_t columns = 5) {
  Pieces p("windows");
  const View x = p.input("x", {p.n, 8, 6, 4}), w = p.weight("w", {4, columns}, 7);
  const View square = p.map("square", {x}, [](const auto& v) { return v[0] * v[0]; });
  const View windows = permute(reshape(square, {p.n, 4, 2, 2, 3, 4}, p.program.facts), {0, 1, 3, 2, 4, 5});
  View rows = reshape(windows, {p.n * 48, 4}, p.program.facts);
  if (rows_read < 48) rows = slice(reshape(windows, {p.n, 48, 4}, p.program.facts), 1, 0, rows_read, 1);
  if (rows_read < 48) rows = reshape(rows, {p.n * rows_read, 4}, p.program.facts);
  p.output("y", p.matmul(rows, w));
  if (read_twice) p.output("z", square);
  return p.program;
}

}  // namespace

TEST_CASE("rows that a product takes from windows are stored as its rows") {
  const Program before = windows_by_weights(48, false);
  Program after = before;
  schedule::lay_out_operands(after);
  verify(after);
  const std::string text = to_string(after);
  INFO(text);
  CHECK(text.find("arena square f32 [48*n, 4]") != std::string::npos);
  schedule::plan_memory(after);
  for (int64_t n : {0, 1, 3}) CHECK(same_results(before, after, {{sym::var("n"), n}}));
}

TEST_CASE("windows that are not all of an image, or are read elsewhere, stay where they are") {
  for (const bool twice : {false, true}) {
    const Program before = windows_by_weights(twice ? 48 : 36, twice);
    Program after = before;
    schedule::lay_out_operands(after);
    CHECK(to_string(after) == to_string(before));
  }
}

// The sum of a weight gradient runs over windows that are shifted cyclically. Its operand is contiguous
// along the gradient's rows.
TEST_CASE("shifted windows are copied for a weight gradient") {
  const Program before = parse_program(R"(
program shifted
  symbol n = input 0 dim 0 in 1..16
  input x f32 [n, 8, 4]
  input dy f32 [2*n, 4, 64]
  output dw f32 [4, 64] ordinal 0
  inputs (x, dy)
  outputs (dw)
  steps
    nest 0 gradient (%i0<4, %i1<64)
      %0 : f32 = reduce sum (%i2<n, %i3<2, %i4<4)
        %1 : f32 = load x[%i2, mod(4*%i3 + %i4 + 2, 8), %i0]
        %2 : f32 = load dy[2*%i2 + %i3, %i4, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dw[%i0, %i1] %0
)");
  Program after = before;
  schedule::lay_out_operands(after);
  verify(after);
  CHECK_MESSAGE(to_string(after).find("arena x.matrix f32 [n, 2, 4, 4]") != std::string::npos,
                to_string(after));
  schedule::plan_memory(after);
  for (int64_t n : {1, 3}) CHECK(same_results(before, after, {{sym::var("n"), n}}));
}

TEST_CASE("windows that are read elsewhere too are copied for a product of many columns") {
  const Program before = windows_by_weights(48, true, 64);
  Program after = before;
  schedule::lay_out_operands(after);
  verify(after);
  CHECK_MESSAGE(to_string(after).find("arena square.matrix f32 [48*n, 4]") != std::string::npos,
                to_string(after));
  schedule::plan_memory(after);
  for (int64_t n : {0, 1, 3}) CHECK(same_results(before, after, {{sym::var("n"), n}}));
  const Program part = windows_by_weights(36, true, 64);
  Program same = part;
  schedule::lay_out_operands(same);
  CHECK(to_string(same) == to_string(part));
}

#include "compiler/schedule/layout/shared_operands.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

// Heads t[b, h, s, j], read by a product over (h, j) and, with `do`, by the gradient of its weight.
Program heads(bool trained) {
  std::string text = R"(
program heads
  symbol b = input 0 dim 0 in 1..16
  input x f32 [b, 3, 10, 4]
  input w f32 [12, 8]
  input dy f32 [b, 10, 8]
  arena t f32 [b, 3, 10, 4]
  output y f32 [b, 10, 8] ordinal 0
  output dw f32 [12, 8] ordinal 1
  inputs (x, w, dy)
  outputs (y, dw)
  steps
    nest 0 square (%i0<b, %i1<3, %i2<10, %i3<4)
      %0 : f32 = load x[%i0, %i1, %i2, %i3]
      %1 : f32 = mul %0 %0
      store t[%i0, %i1, %i2, %i3] %1
    nest 1 forward (%i0<b, %i1<10, %i2<8)
      %0 : f32 = reduce sum (%i3<12)
        %1 : f32 = load t[%i0, %i3//4, %i1, mod(%i3, 4)]
        %2 : f32 = load w[%i3, %i2]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1, %i2] %0
)";
  text += trained ? R"(
    nest 2 gradient (%i0<12, %i1<8)
      %0 : f32 = reduce sum (%i2<10, %i3<b)
        %1 : f32 = load t[%i3, %i0//4, %i2, mod(%i0, 4)]
        %2 : f32 = load dy[%i3, %i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dw[%i0, %i1] %0
)"
                  : R"(
    nest 2 gradient (%i0<12, %i1<8)
      %0 : f32 = constant 0
      store dw[%i0, %i1] %0
)";
  Program program = parse_program(text);
  verify(program);
  return program;
}

std::vector<sym::Expr> strides_of(const Program& program, const std::string& name) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.name == name) return buffer.strides;
  return {};
}

}  // namespace

TEST_CASE("what a product and its weight gradient read is a matrix for both") {
  const Program before = heads(true);
  Program after = before;
  schedule::lay_out_shared_operands(after, {});
  verify(after);
  INFO(to_string(after));
  CHECK(strides_of(after, "t") == std::vector<sym::Expr>{120, 4, 12, 1});  // b, s, h, j
  schedule::plan_memory(after);
  for (const int64_t b : {1, 3}) CHECK(same_results(before, after, {{sym::var("b"), b}}));
}

TEST_CASE("a dim of size 1 is no obstacle to a matrix") {
  Program before = heads(true);
  std::string text = to_string(before);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"symbol b = input 0 dim 0 in 1..16", ""},
                                 {"[b, ", "[1, "},
                                 {"%i0<b, ", ""},
                                 {", %i3<b)", ")"},
                                 {"x[%i0, ", "x[0, "},
                                 {"t[%i0, ", "t[0, "},
                                 {"y[%i0, ", "y[0, "},
                                 {"t[%i3, ", "t[0, "},
                                 {"y[%i3, ", "y[0, "}})
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  INFO(text);
  before = parse_program(text);
  verify(before);
  Program after = before;
  schedule::lay_out_shared_operands(after, {});
  verify(after);
  CHECK(strides_of(after, "t") == std::vector<sym::Expr>{120, 4, 12, 1});
  schedule::plan_memory(after);
  CHECK(same_results(before, after, {}));
}

// Gradients of q, k and v, stacked: the weight gradient of the layer before reads them as one matrix.
TEST_CASE("what a product and a sum read is a matrix for the product") {
  const Program before = parse_program(R"(
program stacked
  symbol b = input 0 dim 0 in 1..16
  input x f32 [b, 5, 7]
  input g f32 [3, b, 2, 5, 4]
  arena t f32 [3, b, 2, 5, 4]
  output dw f32 [24, 7] ordinal 0
  output db f32 [3, 2, 4] ordinal 1
  inputs (x, g)
  outputs (dw, db)
  steps
    nest 0 square (%i0<3, %i1<b, %i2<2, %i3<5, %i4<4)
      %0 : f32 = load g[%i0, %i1, %i2, %i3, %i4]
      %1 : f32 = mul %0 %0
      store t[%i0, %i1, %i2, %i3, %i4] %1
    nest 1 gradient (%i0<24, %i1<7)
      %0 : f32 = reduce sum (%i2<b, %i3<5)
        %1 : f32 = load t[%i0//8, %i2, mod(%i0//4, 2), %i3, mod(%i0, 4)]
        %2 : f32 = load x[%i2, %i3, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dw[%i0, %i1] %0
    nest 2 sums (%i0<3, %i1<2, %i2<4)
      %0 : f32 = reduce sum (%i3<b, %i4<5)
        %1 : f32 = load t[%i0, %i3, %i1, %i4, %i2]
        yield %1
      store db[%i0, %i1, %i2] %0
)");
  verify(before);
  Program after = before;
  schedule::lay_out_shared_operands(after, {});
  verify(after);
  CHECK(strides_of(after, "t") == std::vector<sym::Expr>{8, 120, 4, 24, 1});
  schedule::plan_memory(after);
  for (const int64_t b : {1, 3}) CHECK(same_results(before, after, {{sym::var("b"), b}}));
}

// Windows of 3 x 2 of images t[b, y, x, c] are the rows of a GEMM. Its weight gradient reduces over the same
// windows by one variable for each digit.
TEST_CASE("windows that a GEMM and its weight gradient read are laid out as a matrix for both") {
  Program before = parse_program(R"(
program windows
  symbol b = input 0 dim 0 in 1..16
  input x f32 [b, 6, 8, 4]
  input w f32 [4, 5]
  input dy f32 [8*b, 6, 5]
  arena t f32 [b, 6, 8, 4]
  output y f32 [8*b, 6, 5] ordinal 0
  output dw f32 [4, 5] ordinal 1
  output sum f32 [b, 6, 8] ordinal 2
  inputs (x, w, dy)
  outputs (y, dw, sum)
  steps
    nest 0 square (%i0<b, %i1<6, %i2<8, %i3<4)
      %0 : f32 = load x[%i0, %i1, %i2, %i3]
      %1 : f32 = mul %0 %0
      store t[%i0, %i1, %i2, %i3] %1
    nest 1 forward (%i0<8*b, %i1<6, %i2<5)
      %0 : f32 = reduce sum (%i3<4)
        %1 : f32 = load t[%i0//8, %i1//2 + 3*mod(%i0//4, 2), 2*mod(%i0, 4) + mod(%i1, 2), %i3]
        %2 : f32 = load w[%i3, %i2]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1, %i2] %0
    nest 2 gradient (%i0<4, %i1<5)
      %0 : f32 = reduce sum (%i2<b, %i3<2, %i4<4, %i5<3, %i6<2)
        %1 : f32 = load t[%i2, 3*%i3 + %i5, 2*%i4 + %i6, %i0]
        %2 : f32 = load dy[8*%i2 + 4*%i3 + %i4, 2*%i5 + %i6, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dw[%i0, %i1] %0
    nest 3 others (%i0<b, %i1<6, %i2<8)
      %0 : f32 = reduce sum (%i3<4)
        %1 : f32 = load t[%i0, %i1, %i2, %i3]
        yield %1
      store sum[%i0, %i1, %i2] %0
)");
  verify(before);
  Program after = before;
  schedule::lay_out_shared_operands(after, {});
  verify(after);
  INFO(to_string(after));
  CHECK(to_string(after).find("arena t f32 [b, 2, 4, 3, 2, 4]") != std::string::npos);
  schedule::plan_memory(after);
  for (const int64_t b : {1, 3}) CHECK(same_results(before, after, {{sym::var("b"), b}}));
}

TEST_CASE("what one product reads, and what other steps rely on, stays") {
  Program one = heads(false);
  schedule::lay_out_shared_operands(one, {});
  CHECK(to_string(one) == to_string(heads(false)));
  Program fixed = heads(true);
  std::set<BufferId> ids;
  for (size_t i = 0; i < fixed.buffers.size(); ++i) ids.insert(BufferId(static_cast<int32_t>(i)));
  schedule::lay_out_shared_operands(fixed, ids);
  CHECK(to_string(fixed) == to_string(heads(true)));
}

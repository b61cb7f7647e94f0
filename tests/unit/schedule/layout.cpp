#include "compiler/schedule/layout/layout.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

// A 3x3 convolution of x + x by a narrow copy of w, which is a state that is updated afterwards.
Program convolution() {
  Program program = parse_program(R"(
program convolution
  symbol n = input 0 dim 0 in 1..8
  input x f32 [n, 5, 8, 8]
  state w f32 [6, 5, 3, 3] ordinal 0
  arena narrow bf16 [6, 5, 3, 3]
  arena t f32 [n, 5, 8, 8]
  arena c f32 [n, 6, 6, 6]
  output y f32 [n, 6, 6, 6] ordinal 0
  inputs (x)
  outputs (y)
  states (w)
  steps
    nest 0 cast (%i0<6, %i1<5, %i2<3, %i3<3)
      %0 : f32 = load w[%i0, %i1, %i2, %i3]
      %1 : bf16 = cast %0
      store narrow[%i0, %i1, %i2, %i3] %1
    nest 1 add (%i0<n, %i1<5, %i2<8, %i3<8)
      %0 : f32 = load x[%i0, %i1, %i2, %i3]
      %1 : f32 = add %0 %0
      store t[%i0, %i1, %i2, %i3] %1
    nest 2 conv (%i0<n, %i1<6, %i2<6, %i3<6)
      %0 : f32 = reduce sum (%i4<5, %i5<3, %i6<3)
        %1 : f32 = load t[%i0, %i4, %i2 + %i5, %i3 + %i6]
        %2 : bf16 = load narrow[%i1, %i4, %i5, %i6]
        %3 : f32 = cast %2
        %4 : f32 = mul %1 %3
        yield %4
      store c[%i0, %i1, %i2, %i3] %0
    nest 3 out (%i0<n, %i1<6, %i2<6, %i3<6)
      %0 : f32 = load c[%i0, %i1, %i2, %i3]
      store y[%i0, %i1, %i2, %i3] %0
    nest 4 update (%i0<6, %i1<5, %i2<3, %i3<3)
      %0 : f32 = load w[%i0, %i1, %i2, %i3]
      %1 : f32 = add %0 %0
      store w[%i0, %i1, %i2, %i3] %1
)");
  verify(program);
  return program;
}

// Keys that a state keeps for each head: scores of a query.
Program scores() {
  Program program = parse_program(R"(
program scores
  symbol n = input 0 dim 0 in 1..8
  input x f32 [n, 2, 4]
  state keys f32 [2, 7, 4] ordinal 0
  arena q f32 [n, 2, 4]
  arena s f32 [n, 2, 7]
  output y f32 [n, 2, 7] ordinal 0
  inputs (x)
  outputs (y)
  states (keys)
  steps
    nest 0 add (%i0<n, %i1<2, %i2<4)
      %0 : f32 = load x[%i0, %i1, %i2]
      %1 : f32 = add %0 %0
      store q[%i0, %i1, %i2] %1
    nest 1 scores (%i0<n, %i1<2, %i2<7)
      %0 : f32 = reduce sum (%i3<4)
        %1 : f32 = load q[%i0, %i1, %i3]
        %2 : f32 = load keys[%i1, %i2, %i3]
        %3 : f32 = mul %1 %2
        yield %3
      store s[%i0, %i1, %i2] %0
    nest 2 out (%i0<n, %i1<2, %i2<7)
      %0 : f32 = load s[%i0, %i1, %i2]
      store y[%i0, %i1, %i2] %0
)");
  verify(program);
  return program;
}

// Sums by scales that are trained, each stored several times.
Program scaled_sums() {
  Program program = parse_program(R"(
program sums
  symbol n = input 0 dim 0 in 1..8
  input x f32 [n, 4]
  state scales f32 [4] ordinal 0
  arena q f32 [n, 4]
  arena s f32 [n, 7, 1]
  output y f32 [n, 7, 1] ordinal 0
  inputs (x)
  outputs (y)
  states (scales)
  steps
    nest 0 add (%i0<n, %i1<4)
      %0 : f32 = load x[%i0, %i1]
      %1 : f32 = add %0 %0
      store q[%i0, %i1] %1
    nest 1 sums (%i0<n, %i1<7)
      %0 : f32 = reduce sum (%i2<4)
        %1 : f32 = load q[%i0, %i2]
        %2 : f32 = load scales[%i2]
        %3 : f32 = mul %1 %2
        yield %3
      store s[%i0, %i1, 0] %0
    nest 2 out (%i0<n, %i1<7)
      %0 : f32 = load s[%i0, %i1, 0]
      store y[%i0, %i1, 0] %0
)");
  verify(program);
  return program;
}

sym::Expr innermost(const Program& program, const std::string& name) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.name == name)
      for (size_t d = 0; d < buffer.strides.size(); ++d)
        if (buffer.strides[d].is_const(1)) return static_cast<int64_t>(d);
  return -1;
}

}  // namespace

TEST_CASE("a convolution by weights that are trained is channels-last, and so are copies of its weights") {
  const Program before = convolution();
  Program after = before;
  schedule::choose_layouts(after);
  verify(after);
  INFO(to_string(after));
  CHECK(innermost(after, "t") == sym::Expr(1));
  CHECK(innermost(after, "c") == sym::Expr(1));
  CHECK(innermost(after, "narrow") == sym::Expr(1));
  CHECK(innermost(after, "w") == sym::Expr(3));  // the caller reads and writes it
  schedule::plan_memory(after);
  CHECK(same_results(before, after, {{sym::var("n"), 2}}));
}

TEST_CASE("keys that a state keeps, and scales, are not matrices of weights") {
  for (const Program& before : {scores(), scaled_sums()}) {
    Program after = before;
    schedule::choose_layouts(after);
    CHECK(to_string(after) == to_string(before));
  }
}

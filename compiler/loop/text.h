// The text form of programs: parse(print(p)) prints the same. Weights appear by name, size and hash, without
// their bytes.
//
//   program mlp
//     symbol batch = input 0 dim 0 in 1..64
//     guard mod(batch, 2) == 0 "batch must be even, not {0}" [batch]
//     input x f32 [batch, 784]
//     weight w f32 [784, 10] bytes 31360 hash 8f3c...
//     output y f32 [batch, 10]    (of the name of an input x: output x_1 f32 [batch, 10] called "x")
//     steps
//       nest 0 matmul (%i0<batch, %i1<10)
//         %0 : f32 = reduce sum (%r2<784)
//           %1 : f32 = load x[%i0, %r2]
//           %2 : f32 = load w[%r2, %i1]
//           %3 : f32 = mul %1 %2
//           yield %3
//         store y[%i0, %i1] %0
//
// A nest is printed where it is launched first. Each level is indented by two spaces; expressions are as in
// sym/text.h. Other statements:
//
//   %4 : f32 = load x[%i0 - 1] if 1 <= %i0 else 0
//   %5 : i64 = index %i0 + 3
//   %6 : f32 = constant 0.5
//   store y[%i0] %4 if %i0 < 3            update sum y[%g0] %4
//   bind %g0 < 10 = %5 wrap error "index {0} is out of range for {1}"
//   for (%j0<4)                           %8 : f32, %9 : i64 = reduce argmax (%r3<4)
//   %7 : i32 = scan reverse (%s1<10) [%10 = %6]
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "compiler/loop/program.h"

namespace stridec::loop {

std::string to_string(const Program& program);
std::string to_string(const Program& program, const Nest& nest);  // header and body, without an id
std::string to_string(const Scalar& scalar);                      // the value alone

// The bytes of a weight, by its buffer; empty: not available.
using WeightSource = std::function<WeightData(const Buffer& buffer)>;

// Throws Error kMalformed ("bad-program") with the line. Safe on hostile text. The result is syntactically
// well-formed; whether it is a valid program is verify()'s question.
Program parse_program(std::string_view text, const WeightSource& weights = {});

}  // namespace stridec::loop

#include "compiler/schedule/layout/forward_stores.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"

namespace stridec::schedule {
namespace {

// Heads of 4 x 8 elements that become columns of c. `last`: what the copy's nest, and steps after it, are.
std::string text_of(const std::string& copy, const std::string& index = "%m, %i") {
  return cat(R"(program heads
  input x f32 [4, 6, 8] ordinal 0
  output y f32 [6, 40] ordinal 0
  arena t f32 [4, 6, 8]
  arena c f32 [6, 40]
  inputs (x)
  outputs (y)
  steps
    nest 0 made (%h<4, %m<6, %j<8)
      %0 : f32 = load x[%h, %m, %j]
      %1 : f32 = mul %0 %0
      store t[%h, %m, %j] %1
    nest 1 rest (%m<6, %i<8)
      %0 : f32 = constant 1
      store c[)",
             index, R"(] %0
)",
             copy, R"(    nest 3 read (%m<6, %i<40)
      %0 : f32 = load c[%m, %i]
      store y[%m, %i] %0
)");
}

void check(const std::string& text, bool forwards) {
  const loop::Program before = loop::parse_program(text);
  loop::verify(before);
  loop::Program after = before;
  forward_stores(after);
  loop::eliminate_dead_code(after);
  loop::verify(after);
  CHECK(after.steps.size() == before.steps.size() - (forwards ? 1 : 0));
  loop::HostTensor x = loop::make_tensor(DType::kF32, {4, 6, 8});
  for (int64_t i = 0; i < loop::element_count(x); ++i) loop::set_number(x, i, static_cast<double>(i));
  CHECK(loop::interpret(before, {x})[0].bytes == loop::interpret(after, {x})[0].bytes);
}

const std::string kCopy = R"(    nest 2 copy (%m<6, %i<32)
      %0 : f32 = load t[%i//8, %m, mod(%i, 8)]
      store c[%m, %i + 8] %0
)";

TEST_CASE("results are stored where a copy would put them") {
  check(text_of(kCopy), true);
  // Each dim by itself.
  check(text_of(R"(    nest 2 copy (%a<6, %b<4, %d<8)
      %0 : f32 = load t[%b, %a, %d]
      store c[%a, 8*%b + %d + 8] %0
)"),
        true);
}

TEST_CASE("stores that have to stay") {
  // Part of the buffer.
  check(text_of(R"(    nest 2 copy (%m<6, %i<16)
      %0 : f32 = load t[%i//8, %m, mod(%i, 8)]
      store c[%m, %i + 8] %0
    nest 4 copy (%m<6, %i<16)
      %0 : f32 = constant 2
      store c[%m, %i + 24] %0
)"),
        false);
  // One element for several.
  check(text_of(R"(    nest 2 copy (%m<6, %i<32)
      %0 : f32 = load t[%i//8, %m, 0]
      store c[%m, %i + 8] %0
)"),
        false);
  // Another nest stores there in between.
  check(text_of(kCopy, "%m, %i + 8"), false);
  // Another reader.
  check(text_of(kCopy + R"(    nest 4 more (%m<6, %i<8)
      %0 : f32 = load t[0, %m, %i]
      store c[%m, %i] %0
)"),
        false);
}

}  // namespace
}  // namespace stridec::schedule

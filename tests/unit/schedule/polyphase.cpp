#include "compiler/schedule/algebra/polyphase.h"

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

// y[s] = sum over r of x[(s + before - r*dilation) // stride] * w[r], where the division is exact.
struct Window {
  int64_t stride, taps, dilation, before;
  Expr size;  // of y
  double fill = 0;
};

Program transposed(const Window& w) {
  Pieces p("transposed");
  const View x = p.input("x", {p.n}), weight = p.weight("w", {w.taps, 3}, 7);
  NestBuilder nest(p.program, "conv_transpose");
  const View out = p.temporary("t", {w.size, 3});
  const auto at = nest.dims(out.shape);
  const Value sum = nest.reduce(Combine::kSum, {w.taps}, [&](const std::vector<Expr>& k) {
    const Expr reach = at[0] + w.before - k[0] * w.dilation, source = sym::floordiv(reach, w.stride);
    Access element = access(x, {source});
    element.mask = sym::logical_and(sym::eq(sym::mod(reach, w.stride), 0),
                                    sym::logical_and(sym::ge(source, 0), sym::lt(source, x.shape[0])));
    const Value input = nest.load(element, float_scalar(DType::kF32, w.fill));
    return input * nest.load(weight, {k[0], at[1]});
  });
  nest.store(out, at, sum);
  nest.finish();
  p.output("y", out);
  return p.program;
}

Program split(const Program& program) {
  Program after = program;
  schedule::decompose_polyphase(after);
  verify(after);
  return after;
}

// The nests of the window, without the output copy.
std::string text_of(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) {
    const Nest& nest = program[std::get<Launch>(step.node).nest];
    if (nest.name == "conv_transpose") text += to_string(program, nest);
  }
  return text;
}

std::string refusal(const Program& program) {
  std::string reason;
  CHECK(schedule::polyphase_nests(program, program.nests[0], &reason).empty());
  CHECK(split(program).steps.size() == program.steps.size());
  return reason;
}

const Expr n = sym::var("n");

}  // namespace

TEST_CASE("each phase of a transposed window sums over its own taps") {
  const Program before = transposed({.stride = 2, .taps = 3, .dilation = 1, .before = 0, .size = 2 * n + 1});
  CHECK(text_of(split(before)) ==
        R"(nest conv_transpose (%i0<n + 1, %i1<3)
  %3 : f32 = reduce sum (%r2<2)
    %0 : f32 = load x[%i0 - %r2] if %i0 < %r2 + n && %r2 <= %i0 else 0
    %1 : f32 = load w[2*%r2, %i1]
    %2 : f32 = mul %0 %1
    yield %2
  store t[2*%i0, %i1] %3
nest conv_transpose (%i0<n, %i1<3)
  %0 : f32 = load x[%i0]
  %1 : f32 = load w[1, %i1]
  %2 : f32 = mul %0 %1
  store t[2*%i0 + 1, %i1] %2
)");
}

TEST_CASE("a phase without taps is zero") {
  const Program before = transposed({.stride = 3, .taps = 1, .dilation = 1, .before = 0, .size = 3 * n});
  const std::string text = text_of(split(before));
  CHECK(text.find("reduce") == std::string::npos);
  CHECK(text.find("constant 0") != std::string::npos);
}

TEST_CASE("many phases with equally many taps are a dim of one nest") {
  const Program before = transposed({.stride = 64, .taps = 128, .dilation = 1, .before = 32, .size = 64 * n});
  const Program after = split(before);
  CHECK(after.steps.size() == before.steps.size());
  CHECK(text_of(after).find("64*%i0 + %i0.p") != std::string::npos);
  CHECK(text_of(after).find("== 0") == std::string::npos);
  Program planned = after;
  schedule::plan_memory(planned);
  for (int64_t size : {0, 1, 2}) CHECK(same_results(before, planned, {{n, size}, {sym::var("m"), 1}}));
}

TEST_CASE("phases of any stride, dilation, padding and size give what the window gave") {
  for (int64_t stride : {2, 3, 4, 20})
    for (int64_t taps : {1, 2, 3, 5, 40})
      for (int64_t dilation : {1, 2, 3, 4})
        for (int64_t padding : {0, 1, 3}) {
          if ((stride == 20 || taps == 40) && (dilation > 2 || padding > 1)) continue;
          CAPTURE(cat(stride, " ", taps, " ", dilation, " ", padding));
          const Program before = transposed({stride, taps, dilation, padding, n * stride + padding});
          Program after = split(before);
          schedule::plan_memory(after);
          for (int64_t size : {0, 1, 4}) {
            if (size == 0 && padding != 0) continue;  // no element of x exists
            CHECK(same_results(before, after, {{n, size}, {sym::var("m"), 1}}));
          }
        }
}

TEST_CASE("windows whose taps do not follow from the phase stay") {
  CHECK(refusal(transposed({.stride = 1, .taps = 3, .dilation = 1, .before = 0, .size = n})) ==
        "no sum runs over a strided window");
  // Not applicable: masked elements affect the result.
  CHECK(refusal(transposed({.stride = 2, .taps = 3, .dilation = 1, .before = 0, .size = 2 * n, .fill = 1})) ==
        "no sum runs over a strided window");
}

TEST_CASE("places that no tap reaches are 0, also where a weight is infinite") {
  // One tap at a stride of 2: every other place.
  const Program before = transposed({.stride = 2, .taps = 1, .dilation = 1, .before = 0, .size = 10});
  Program after = split(before);
  const std::string text = text_of(after);
  INFO(text);
  size_t loads = 0;
  for (size_t at = text.find("load w"); at != std::string::npos; at = text.find("load w", at + 1)) ++loads;
  CHECK(loads == 1);
  schedule::plan_memory(after);
  CHECK(same_results(before, after, {{sym::var("n"), 5}}));
}

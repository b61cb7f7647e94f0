#include "compiler/schedule/fusion/recompute_operands.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/analysis/live_bytes.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

// A hidden layer, h = tanh(a), and its gradients. Nothing reads h at the peak of memory, in `loss`.
struct HiddenLayer {
  std::string_view between = "";  // a step after `loss`
  std::string_view of_v = R"(
    nest 3 of_v (%i0<16384, %i1<4)
      %0 : f32 = reduce sum (%i2<n)
        %1 : f32 = load h[%i2, %i0]
        %2 : f32 = load dy[%i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dv[%i0, %i1] %0)";
  std::string_view gradient = "load a[%i0, %i1]";  // of which of_a computes 1 - tanh(..) ^ 2
  std::string_view of_a_reads = "dy[%i0, %i2]";

  std::string text() const {
    return cat(R"(program layer
  symbol n = input 0 dim 0 in 1..4096
  input x f32 [n, 4]
  input w f32 [4, 16384]
  input v f32 [16384, 4]
  state kept f32 [16384] ordinal 0
  arena a f32 [n, 16384]
  arena h f32 [n, 16384]
  arena y f32 [n, 4]
  arena dy f32 [n, 4]
  arena z f32 [n, 16384]
  arena da f32 [n, 16384]
  output dv f32 [16384, 4] ordinal 0
  output dw f32 [4, 16384] ordinal 1
  inputs (x, w, v)
  outputs (dv, dw)
  states (kept)
  steps
    nest 0 up (%i0<n, %i1<16384)
      %0 : f32 = reduce sum (%i2<4)
        %1 : f32 = load x[%i0, %i2]
        %2 : f32 = load w[%i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store a[%i0, %i1] %0
      store z[%i0, %i1] %0
      %4 : f32 = tanh %0
      %5 : f32 = load kept[%i1]
      %6 : f32 = add %4 %5
      store h[%i0, %i1] %6
    nest 1 down (%i0<n, %i1<4)
      %0 : f32 = reduce sum (%i2<16384)
        %1 : f32 = load h[%i0, %i2]
        %2 : f32 = load v[%i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1] %0
    nest 2 loss (%i0<n, %i1<4)
      %0 : f32 = load y[%i0, %i1]
      %1 : f32 = reduce max (%i2<16384)
        %2 : f32 = load z[%i0, %i2]
        yield %2
      %3 : f32 = sub %0 %1
      store dy[%i0, %i1] %3)",
               between, of_v, R"(
    nest 4 of_a (%i0<n, %i1<16384)
      %0 : f32 = reduce sum (%i2<4)
        %1 : f32 = load )",
               of_a_reads, R"(
        %2 : f32 = load v[%i1, %i2]
        %3 : f32 = mul %1 %2
        yield %3
      %4 : f32 = )",
               gradient, R"(
      %5 : f32 = tanh %4
      %6 : f32 = mul %5 %5
      %7 : f32 = mul %0 %6
      store da[%i0, %i1] %7
    nest 5 of_w (%i0<4, %i1<16384)
      %0 : f32 = reduce sum (%i2<n)
        %1 : f32 = load x[%i2, %i0]
        %2 : f32 = load da[%i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dw[%i0, %i1] %0
)");
  }
};

// Whether the pass computes h again; the results stay the same.
bool computes_again(const std::string& text) {
  const Program before = parse_program(text);
  Program after = before;
  recompute_operands(after, nullptr);
  eliminate_dead_code(after);
  const std::string made = to_string(after);
  plan_memory(after);
  verify(after);
  CHECK(same_results(before, after, {{sym::var("n"), 3}}));
  bool again = false;
  for (const Buffer& buffer : after.buffers) again = again || buffer.name == "h_again";
  if (again)
    CHECK(peak_bytes(after) <= peak_bytes(before));
  else
    CHECK(made == to_string(before));
  return again;
}

}  // namespace

TEST_SUITE("recompute_operands") {
  TEST_CASE("the epilogue that reads an activation's operand computes the activation again") {
    CHECK(computes_again(HiddenLayer().text()));
  }

  TEST_CASE("a step that reads the activation itself computes it instead") {
    // h - kept is tanh(a); any function of h will do.
    HiddenLayer layer;
    layer.between = R"(
    nest 6 probe (%i0<n, %i1<16384)
      %0 : f32 = load a[%i0, %i1]
      %1 : f32 = load h[%i0, %i1]
      %2 : f32 = mul %0 %1
      store da[%i0, %i1] %2
    nest 7 total (%i0<16384)
      %0 : f32 = reduce sum (%i1<n)
        %1 : f32 = load da[%i1, %i0]
        yield %1
      store kept[%i0] %0)";
    const std::string text = layer.text();
    // A second writer of da would be a reason of its own.
    std::string own = text;
    for (size_t at; (at = own.find("store da[%i0, %i1] %2")) != std::string::npos;)
      own.replace(at, 9, "store db[");
    for (size_t at; (at = own.find("load da[%i1, %i0]")) != std::string::npos;)
      own.replace(at, 8, "load db[");
    own.insert(own.find("  output dv"), "  arena db f32 [n, 16384]\n");
    CHECK(computes_again(own));
  }

  TEST_CASE("not where memory would then have its peak") {
    std::string text = HiddenLayer().text();
    text.replace(text.find("load z[%i0, %i2]"), 6, "load h");
    text.erase(text.find("      store z"), std::string("      store z[%i0, %i1] %0\n").size());
    text.erase(text.find("  arena z"), std::string("  arena z f32 [n, 16384]\n").size());
    CHECK(!computes_again(text));
  }

  TEST_CASE("not after an operand has changed") {
    HiddenLayer layer;
    layer.between = R"(
    nest 6 update (%i0<16384)
      %0 : f32 = load kept[%i0]
      %1 : f32 = add %0 %0
      store kept[%i0] %1)";
    CHECK(!computes_again(layer.text()));
  }

  TEST_CASE("not by a step that needs what the late reader computes") {
    HiddenLayer layer;
    layer.of_a_reads = "dv[%i1, %i2]";
    CHECK(!computes_again(layer.text()));
  }

  TEST_CASE("not by a late reader that needs what another one computes") {
    HiddenLayer layer;
    layer.of_a_reads = "dv[%i1, %i2]";
    layer.gradient = "load h[%i0, %i1]";
    std::string text = layer.text();
    // The step that could compute h again reads both h and its operand.
    const std::string tanh = "%5 : f32 = tanh %4";
    text.replace(text.rfind(tanh), tanh.size(), "%8 : f32 = load a[%i0, %i1]\n      %5 : f32 = add %4 %8");
    CHECK(!computes_again(text));
  }

  TEST_CASE("not where no step reads the operand at each element once") {
    HiddenLayer layer;
    layer.gradient = "load a[0, %i1]";
    CHECK(!computes_again(layer.text()));
  }

  TEST_CASE("a row's nest computes normalised rows again in the loop that reads the row") {
    const std::string text = R"(program norm
  symbol n = input 0 dim 0 in 1..4096
  input x f32 [n, 16384]
  input v f32 [16384, 2]
  arena t f32 [n, 16384]
  arena h f32 [n, 16384]
  arena z f32 [n, 16384]
  arena y f32 [n, 2]
  arena m f32 [n]
  arena dy f32 [n, 2]
  output dx f32 [n, 16384] ordinal 0
  output dv f32 [16384, 2] ordinal 1
  inputs (x, v)
  outputs (dx, dv)
  steps
    nest 0 start (%i0<n, %i1<16384)
      %0 : f32 = load x[%i0, %i1]
      %1 : f32 = tanh %0
      store t[%i0, %i1] %1
      store z[%i0, %i1] %0
    nest 1 norm (%i0<n)
      %0 : f32 = reduce max (%i1<16384)
        %1 : f32 = load t[%i0, %i1]
        yield %1
      store m[%i0] %0
      for (%i2<16384)
        %2 : f32 = load t[%i0, %i2]
        %3 : f32 = sub %2 %0
        store h[%i0, %i2] %3
    nest 2 down (%i0<n, %i1<2)
      %0 : f32 = reduce sum (%i2<16384)
        %1 : f32 = load h[%i0, %i2]
        %2 : f32 = load v[%i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store y[%i0, %i1] %0
    nest 3 loss (%i0<n, %i1<2)
      %0 : f32 = load y[%i0, %i1]
      %1 : f32 = reduce max (%i2<16384)
        %2 : f32 = load z[%i0, %i2]
        yield %2
      %3 : f32 = sub %0 %1
      store dy[%i0, %i1] %3
    nest 4 of_v (%i0<16384, %i1<2)
      %0 : f32 = reduce sum (%i2<n)
        %1 : f32 = load h[%i2, %i0]
        %2 : f32 = load dy[%i2, %i1]
        %3 : f32 = mul %1 %2
        yield %3
      store dv[%i0, %i1] %0
    nest 5 back (%i0<n)
      %0 : f32 = load dy[%i0, 0]
      %1 : f32 = load m[%i0]
      %2 : f32 = mul %0 %1
      for (%i1<16384)
        %3 : f32 = load t[%i0, %i1]
        %4 : f32 = mul %3 %2
        store dx[%i0, %i1] %4
)";
    CHECK(computes_again(text));
  }
}

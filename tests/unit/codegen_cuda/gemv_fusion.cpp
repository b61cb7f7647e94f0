// The parts of a decoder step, fused, emulated and compared with the interpreter: GEMVs with the
// normalisation before and the gate after them, and small nests merged into one kernel.
#include "compiler/schedule/fusion/gemv_fusion.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/block_fusion.h"
#include "compiler/schedule/fusion/gemv_epilogue.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/support/emulate.h"
#include "tests/support/random_weights.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;
using test::random_tensor;

std::string edited(const std::string& text, const char* from, const char* to) {
  REQUIRE(text.find(from) != std::string::npos);
  return replaced(text, from, to);
}

// Runs the GPU passes on the program with random weights; compares the emulated result with the original
// program.
loop::Program check(const std::string& text) {
  const loop::Program given = test::with_random_weights(loop::parse_program(text));
  loop::verify(given);
  std::vector<HostTensor> inputs;
  for (loop::BufferId id : given.inputs)
    inputs.push_back(
        random_tensor(given[id].dtype, test::shape_of(given[id]), static_cast<int>(inputs.size())));
  const std::vector<HostTensor> want = loop::interpret(given, inputs, {.poison = true});

  loop::Program program = given;
  schedule::fuse_gemvs(program);
  loop::eliminate_dead_code(program);
  loop::verify(program);
  schedule::fuse_in_block(program);
  loop::eliminate_dead_code(program);
  loop::verify(program);
  schedule::fuse_gemv_epilogues(program);
  loop::verify(program);
  schedule::fuse_in_block(program);
  loop::eliminate_dead_code(program);
  loop::verify(program);
  const GpuTarget& target = gpu_target("sm_90a");
  schedule::choose_gpu(program, target);
  const loop::Program ready = test::prepacked(program);
  size_t choices = 1;
  for (size_t choice = 0; choice < choices; ++choice) {
    INFO("choice ", choice);
    const auto got = test::emulate(ready, inputs, target, choice, &choices);
    REQUIRE(got.has_value());
    for (size_t o = 0; o < want.size(); ++o)
      for (int64_t i = 0; i < loop::element_count(want[o]); ++i) {
        const double x = loop::get_number((*got)[o], i), y = loop::get_number(want[o], i);
        if (!(std::fabs(x - y) <= 1.6e-2 * std::max(1.0, std::fabs(y))))
          FAIL(o, " at ", i, ": ", x, " for ", y);
      }
  }
  return program;
}

int launches(const loop::Program& program) { return static_cast<int>(program.steps.size()); }

// A sum of squares, the scaled row, and two GEMVs of it, the second with a gate; the last nest reads y.
const char* kStep = R"(program p
  input x bf16 [1, 512] ordinal 0
  weight n bf16 [512] bytes 1024 hash 0000000000000000
  weight a bf16 [512, 320] bytes 327680 hash 0000000000000000
  weight b bf16 [512, 320] bytes 327680 hash 0000000000000000
  weight c bf16 [320, 512] bytes 327680 hash 0000000000000000
  arena s f32 [1]
  arena t bf16 [1, 512]
  arena u bf16 [1, 320]
  arena v bf16 [1, 5, 64]
  output y bf16 [1, 512] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 squares ()
      %0 : f32 = reduce sum (%k<512)
        %1 : bf16 = load x[0, %k]
        %2 : f32 = cast %1
        %3 : f32 = mul %2 %2
        yield %3
      %4 : f32 = rsqrt %0
      store s[0] %4
    nest 1 scaled (%k<512)
      %0 : bf16 = load x[0, %k]
      %1 : f32 = cast %0
      %2 : f32 = load s[0]
      %3 : f32 = mul %1 %2
      %4 : bf16 = cast %3
      %5 : bf16 = load n[%k]
      %6 : bf16 = mul %4 %5
      store t[0, %k] %6
    nest 2 up (%n<320)
      %0 : f32 = reduce sum (%k<512)
        %1 : bf16 = load t[0, %k]
        %2 : f32 = cast %1
        %3 : bf16 = load a[%k, %n]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : bf16 = cast %0
      store u[0, %n] %6
    nest 3 gate (%n<320)
      %0 : f32 = reduce sum (%k<512)
        %1 : bf16 = load t[0, %k]
        %2 : f32 = cast %1
        %3 : bf16 = load b[%k, %n]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : bf16 = cast %0
      %7 : bf16 = sigmoid %6
      %8 : bf16 = load u[0, %n]
      %9 : bf16 = mul %7 %8
      store v[0, %n//64, mod(%n, 64)] %9
    nest 4 down (%n<512)
      %0 : f32 = reduce sum (%h<5, %k<64)
        %1 : bf16 = load v[0, %h, %k]
        %2 : f32 = cast %1
        %3 : bf16 = load c[64*%h + %k, %n]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : bf16 = cast %0
      %7 : bf16 = load x[0, %n]
      %8 : bf16 = add %6 %7
      store y[0, %n] %8
)";

}  // namespace

TEST_CASE("GEMVs fuse the normalisation before them and their sibling GEMV") {
  const loop::Program made = check(kStep);
  CHECK(launches(made) == 2);
  for (const loop::Nest& nest : made.nests)
    if (nest.name.starts_with("order")) CHECK(nest.dims.size() == 2);  // weights contiguous along the depth
  CHECK(made.prepack.size() == 3);
}

TEST_CASE("weights are on their way before a product waits for its row") {
  loop::Program made = check(kStep);
  const GpuTarget& target = gpu_target("sm_90a");
  int products = 0;
  for (const loop::Nest& nest : made.nests) {
    if (nest.dims.size() != 1 || nest.name.starts_with("order")) continue;
    const DeviceKernel kernel = emit_nest(made, nest, target).choices[0].launches[0];
    const std::string& text = kernel.code.text;
    CHECK(text.find("++i) fill();") < text.find("griddepcontrol.wait"));
    const bool norm =
        text.find("prefetch.global.L2 [%0];") < text.find("griddepcontrol.wait");  // prefetches its weights
    CHECK(norm == (products == 0));
    // The norm's weights are loaded with the row, once; after the wait, neither the scale nor the row is
    // loaded again.
    const size_t row = text.find("sd_load<8>(p", text.find("griddepcontrol.wait")),
                 points = text.find("for (int point");
    int loads = 0;
    for (size_t at = row; at < points; at = text.find("sd_load<8>(p", at + 1)) ++loads;
    CHECK(loads == (norm ? 2 : 1));
    CHECK(text.find("__shared__ f32 all_") == std::string::npos);
    CHECK(text.find("sd_load<8>(l", points) == std::string::npos);
    CHECK(text.find("/ gridDim") == std::string::npos);
    // One block per multiprocessor, with room for another kernel's registers.
    CHECK(kernel.shared_bytes.value() > (100 << 10));
    CHECK(kernel.threads == 256);
    ++products;
  }
  CHECK(products == 2);
  // Without a copy engine, threads load.
  for (const loop::Nest& nest : made.nests)
    if (nest.dims.size() == 1)
      CHECK(emit_nest(made, nest, gpu_target("sm_80")).choices[0].launches[0].code.text.find("fill();") ==
            std::string::npos);
}

TEST_CASE("a row that others read stays, and so does one that takes long to make") {
  std::string text = kStep;
  const auto replace = [&](const char* from, const char* to) { text = edited(text, from, to); };
  replace("  arena t bf16 [1, 512]\n", "");
  replace("  output y bf16 [1, 512] ordinal 0\n",
          "  output y bf16 [1, 512] ordinal 0\n  output t bf16 [1, 512] ordinal 1\n");
  replace("outputs (y)", "outputs (y, t)");
  // The sum and the row are small nests, merged into one kernel.
  CHECK(launches(check(text)) == 3);
}

TEST_CASE("small nests are one kernel, whose loops follow each other") {
  const loop::Program made = check(R"(program p
  input x f32 [40, 8] ordinal 0
  input at i64 [1] ordinal 1
  arena s f32 [40]
  output y f32 [40, 8] ordinal 0
  output z f32 [8] ordinal 1
  output w f32 [9, 40] ordinal 2
  inputs (x, at)
  outputs (y, z, w)
  steps
    nest 0 sums (%i<40)
      %0 : f32 = reduce sum (%j<8)
        %1 : f32 = load x[%i, %j]
        yield %1
      store s[%i] %0
    nest 1 less (%i<40, %j<8)
      %0 : f32 = load s[39 - %i]
      %1 : f32 = load x[%i, %j]
      %2 : f32 = sub %1 %0
      store y[%i, %j] %2
    nest 2 all (%j<8)
      %0 : f32 = reduce max (%i<40)
        %1 : f32 = load x[%i, %j]
        yield %1
      store z[%j] %0
    nest 3 zero (%i<9, %j<40)
      %0 : f32 = load s[%j]
      store w[%i, %j] %0
    nest 4 scatter (%j<40)
      %0 : i64 = load at[0]
      bind %r < 9 = %0 error "index {0} of {1}"
      %1 : f32 = constant 3
      store w[%r, %j] %1
)");
  CHECK(launches(made) == 1);
}

// The loop over points is distributed, and each thread's points have a local row. In shared memory, threads
// would overwrite each other's rows, which the race check finds.
TEST_CASE("small nests with a row that is local to a point are one kernel") {
  const loop::Program made = check(R"(program p
  input x f32 [4, 6] ordinal 0
  arena s f32 [4, 6]
  local r f32 [6]
  output y f32 [4, 6] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 scale (%i<4, %j<6)
      %0 : f32 = load x[%i, %j]
      %1 : f32 = add %0 %0
      store s[%i, %j] %1
    nest 1 shares (%i<4)
      for (%j<6)
        %0 : f32 = load s[%i, %j]
        %1 : f32 = exp %0
        store r[%j] %1
      %2 : f32 = reduce sum (%k<6)
        %3 : f32 = load r[%k]
        yield %3
      for (%l<6)
        %4 : f32 = load r[%l]
        %5 : f32 = div %4 %2
        store y[%i, %l] %5
)");
  REQUIRE(launches(made) == 1);
  const DeviceNest kernels = emit_nest(made, made.nests[0], gpu_target("sm_90a"));
  for (const DeviceChoice& choice : kernels.choices) {
    const std::string& kernel = choice.launches[0].code.text;
    CHECK(kernel.find("  f32 l1[6];") != std::string::npos);
    CHECK(kernel.find("__shared__ f32 all_l1") == std::string::npos);
  }
}

// Threads without an iteration must not act: they would read other threads' incomplete iterations.
TEST_CASE("small nests that load again what a point has stored are one kernel") {
  CHECK(launches(check(R"(program p
  input x f32 [5, 6] ordinal 0
  arena s f32 [5, 6]
  output y f32 [5, 6] ordinal 0
  output z f32 [5] ordinal 1
  inputs (x)
  outputs (y, z)
  steps
    nest 0 scale (%i<5, %j<6)
      %0 : f32 = load x[%i, %j]
      %1 : f32 = add %0 %0
      store s[%i, %j] %1
    nest 1 rows (%i<5)
      for (%j<6)
        %0 : f32 = load s[%i, %j]
        %1 : f32 = exp %0
        store y[%i, %j] %1
      %2 : f32 = reduce sum (%k<6)
        %3 : f32 = load y[%i, %k]
        yield %3
      store z[%i] %2
)")) == 1);
}

TEST_CASE("loops inside a few points are dealt out as a whole") {
  const loop::Program made = check(R"(program p
  input x f32 [6, 20] ordinal 0
  input c f32 [9, 6] ordinal 1
  input at i64 [1] ordinal 2
  output y f32 [6, 20] ordinal 0
  output z f32 [6] ordinal 1
  output w f32 [6, 5] ordinal 2
  inputs (x, c, at)
  outputs (y, z, w)
  steps
    nest 0 turned (%i<6)
      %0 : i64 = load at[0]
      bind %r < 9 = %0 error "index {0} of {1}"
      %1 : f32 = load c[%r, %i]
      store z[%i] %1
      for (%j<20)
        %2 : f32 = load x[%i, %j]
        %3 : f32 = mul %1 %2
        store y[%i, %j] %3
      for (%k<5)
        %4 : f32 = load x[%i, 4 * %k]
        %5 : f32 = sub %1 %4
        store w[%i, %k] %5
)");
  CHECK(launches(made) == 1);
  CHECK(made.nests[0].dims.empty());
  CHECK(made.nests[0].body.size() >= 3);
}

// A GEMV whose columns are heads: four are rotated by halves, two of these are stored to a cache, and two
// more are stored there unrotated. `%r` rotates pairs at distance 32.
const char* kHeads = R"(program p
  input x bf16 [1, 256] ordinal 0
  input at i64 [1] ordinal 1
  input c bf16 [32] ordinal 2
  weight a bf16 [256, 384] bytes 196608 hash 0000000000000000
  arena u bf16 [1, 384]
  arena k bf16 [2, 64]
  output q bf16 [2, 64] ordinal 0
  output keys bf16 [2, 9, 64] ordinal 1
  output values bf16 [2, 9, 64] ordinal 2
  inputs (x, at, c)
  outputs (q, keys, values)
  steps
    nest 0 none (%h<2, %s<9, %j<64)
      %0 : bf16 = constant 0
      store keys[%h, %s, %j] %0
      store values[%h, %s, %j] %0
    nest 1 heads (%n<384)
      %0 : f32 = reduce sum (%k<256)
        %1 : bf16 = load x[0, %k]
        %2 : f32 = cast %1
        %3 : bf16 = load a[%k, %n]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : bf16 = cast %0
      store u[0, %n] %6
    nest 2 low (%h<2, %j<32)
      %0 : bf16 = load u[0, 64*%h + %j]
      %1 : bf16 = load u[0, 64*%h + %j + 32]
      %2 : bf16 = load c[%j]
      %3 : bf16 = mul %1 %2
      %4 : bf16 = sub %0 %3
      store q[%h, %j] %4
    nest 3 high (%h<2, %j<32)
      %0 : bf16 = load u[0, 64*%h + %j]
      %1 : bf16 = load u[0, 64*%h + %j + 32]
      %2 : bf16 = load c[%j]
      %3 : bf16 = mul %0 %2
      %4 : bf16 = add %1 %3
      store q[%h, %j + 32] %4
    nest 4 low (%h<2, %j<32)
      %0 : bf16 = load u[0, 64*%h + %j + 128]
      %1 : bf16 = load u[0, 64*%h + %j + 160]
      %2 : bf16 = load c[%j]
      %3 : bf16 = mul %1 %2
      %4 : bf16 = sub %0 %3
      store k[%h, %j] %4
    nest 5 high (%h<2, %j<32)
      %0 : bf16 = load u[0, 64*%h + %j + 128]
      %1 : bf16 = load u[0, 64*%h + %j + 160]
      %2 : bf16 = load c[%j]
      %3 : bf16 = mul %0 %2
      %4 : bf16 = add %1 %3
      store k[%h, %j + 32] %4
    nest 6 scatter (%h<2, %j<64)
      %0 : i64 = load at[0]
      bind %r < 9 = %0 error "index {0} of {1}"
      %1 : bf16 = load k[%h, %j]
      store keys[%h, %r, %j] %1
    nest 7 scatter (%h<2, %j<64)
      %0 : i64 = load at[0]
      bind %r < 9 = %0 error "index {0} of {1}"
      %1 : bf16 = load u[0, 64*%h + %j + 256]
      store values[%h, %r, %j] %1
)";

TEST_CASE("heads are turned and put into their cache by who makes them") {
  const loop::Program made = check(kHeads);
  CHECK(launches(made) == 2);
  const auto joined = std::find_if(made.nests.begin(), made.nests.end(), [](const loop::Nest& nest) {
    return nest.dims.size() == 2 && nest.schedule.directives.size() == 1;
  });
  REQUIRE(joined != made.nests.end());
  CHECK(joined->dims[0].extent.is_const(6));
  CHECK(joined->dims[1].extent.is_const(32));
}

TEST_CASE("what is looked up by the place of a step is on its way before the sums") {
  std::string text = kHeads;
  const auto replace = [&](const char* from, const char* to) { text = edited(text, from, to); };
  replace("x bf16 [1, 256]", "x bf16 [1, 1024]");  // as many bytes as are worth streaming
  replace("a bf16 [256, 384] bytes 196608", "a bf16 [1024, 384] bytes 786432");
  replace("%k<256", "%k<1024");
  replace("input c bf16 [32]", "input c bf16 [9, 32]");
  replace("      %2 : bf16 = load c[%j]\n      %3 : bf16 = mul %1 %2\n      %4 : bf16 = sub %0 %3\n",
          "      %5 : i64 = load at[0]\n      bind %r < 9 = %5 error \"index {0} of {1}\"\n"
          "      %2 : bf16 = load c[%r, %j]\n      %3 : bf16 = mul %1 %2\n      %4 : bf16 = sub %0 %3\n");
  replace("load c[%j]", "load c[0, %j]");
  const loop::Program made = check(text);
  CHECK(launches(made) == 2);
  for (const loop::Nest& nest : made.nests) {
    if (nest.dims.size() != 2 || nest.schedule.directives.size() != 1) continue;
    const std::string kernel = emit_nest(made, nest, gpu_target("sm_90a")).choices[0].launches[0].code.text;
    const size_t points = kernel.find("for (int point = "), sums = kernel.find("sd_stage_wait(bars", points);
    REQUIRE(sums != std::string::npos);
    CHECK(kernel.find("b0 >= 0") < points);  // checks the position once
    const size_t looked_up = kernel.find("+ 32 * b0]", points);
    CHECK(looked_up < sums);
  }
}

TEST_CASE("other inputs of a rotation are computed before") {
  std::string text = kHeads;
  for (size_t at = 0; (at = text.find("load c[%j]", at)) != std::string::npos;)
    text.replace(at, 10, "load d[%j]");
  const std::string arena = "  arena k bf16", low = "    nest 2 low";
  text.insert(text.find(arena), "  arena d bf16 [32]\n");
  text.insert(text.find(low), R"(    nest 8 near (%j<32)
      %0 : bf16 = load c[%j]
      %1 : bf16 = mul %0 %0
      store d[%j] %1
)");
  const loop::Program made = check(text);
  CHECK(launches(made) == 2);
  const auto joined = std::count_if(made.nests.begin(), made.nests.end(), [](const loop::Nest& nest) {
    return nest.dims.size() == 2 && nest.schedule.directives.size() == 1;
  });
  CHECK(joined == 1);
}

TEST_CASE("what is between columns in other ways stays a kernel of its own") {
  std::string text = kHeads;
  const auto replace = [&](const char* from, const char* to) { text = edited(text, from, to); };
  SUBCASE("three columns at a time") {
    replace("      %2 : bf16 = load c[%j]\n", "      %2 : bf16 = load u[0, 64*%h + %j + 64]\n");
    CHECK(launches(check(text)) == 3);
  }
  SUBCASE("columns of other distances") {
    replace("%1 : bf16 = load u[0, 64*%h + %j + 160]", "%1 : bf16 = load u[0, 64*%h + %j + 144]");
    CHECK(launches(check(text)) == 3);
  }
  SUBCASE("what one round leaves another one reads") {
    replace("%1 : bf16 = load k[%h, %j]", "%1 : bf16 = load k[1 - %h, %j]");
    CHECK(launches(check(text)) == 3);
  }
}

}  // namespace stridec::codegen::cuda

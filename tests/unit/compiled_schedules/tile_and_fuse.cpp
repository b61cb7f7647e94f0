// Tiled groups as machine code.
#include "compiler/schedule/fusion/tile_and_fuse.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/schedule/heuristics/choose.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::testing;

TEST_CASE("strips compute what whole buffers do, on any number of threads") {
  for (const int64_t channels : {48, 56}) {
    const loop::Program before = planes_of_products(channels, channels);
    loop::Program after = before;
    schedule::tile_and_fuse(after);
    REQUIRE(after.steps.size() == before.steps.size() - 2);
    for (const char* name : {"x86-64-v3", "native"}) {
      const CpuTarget target = cpu_target(name);
      codegen::cpu::RunCompiledOptions one{.target = target, .parts = 1}, three{.target = target};
      loop::Program scheduled = after;
      schedule::choose(scheduled, target, {});
      codegen::cpu::CompiledProgram serial(scheduled, one), shared(scheduled, three);
      for (const auto& [images, n] :
           {std::pair<int64_t, int64_t>{1, 6}, {1, 20}, {3, 45}, {2, 205}, {0, 30}}) {
        CAPTURE(cat(name, " ", channels, " ", images, " ", n));
        const auto inputs = random_inputs(before, {{sym::var("m"), images}, {sym::var("n"), n}}, 7);
        const auto want = loop::interpret(before, inputs), got = serial.run(inputs);
        CHECK(close(got, want, 1e-5));
        CHECK(shared.run(inputs)[0].bytes == got[0].bytes);
      }
    }
  }
}

#include "compiler/tune/tune.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>

#include "compiler/codegen/cuda/build.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "compiler/schedule/layout/order_weights.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/flash_cases.h"
#include "tests/support/matrix_cases.h"
#include "tests/unit/tune/program.h"

using namespace stridec;
using namespace stridec::testing;
using namespace stridec::tune;

namespace {

const GpuTarget& target() { return gpu_target("sm_90a"); }

// Each kernel takes a time derived from its name.
void take_time(const FakeLaunch* launch, void*) {
  fake_cuda()->clock += static_cast<double>(std::hash<std::string_view>()(launch->symbol) % 64);
}

struct Device {
  Device() {
    fake_cuda_reset();
    fake_cuda_register(nullptr, take_time, nullptr);
  }
  ~Device() { fake_cuda_reset(); }
};

std::vector<schedule::SizesOf> sizes(int64_t n) {
  return {[n](sym::Expr) { return std::optional(n); }};
}

}  // namespace

TEST_CASE("kernels are tuned on a GPU, and replayed where there is none") {
  const Device device;
  const loop::Program p = program();
  Database database("");
  Options options{.database = &database, .measure = true, .shapes = {{{"n", 64}}}, .seconds = 5};
  const Result first = tune::tune(p, target(), options);
  CHECK(first.problem == "");
  REQUIRE(!first.kernels.empty());
  size_t trials = 0;
  for (const Tuned& kernel : first.kernels) {
    CHECK(kernel.origin == Tuned::Origin::kMeasured);
    CHECK(kernel.entry.microseconds > 0);
    CHECK(kernel.entry.microseconds <= kernel.entry.default_microseconds * 1.001);
    CHECK(kernel.entry.key.target == "sm_90a");
    CHECK(kernel.entry.key.device == "Fake_GPU");
    CHECK(schedule::refusal(p, p[kernel.nests[0]], target(), loop::parse_schedule(kernel.entry.schedule))
              .empty());
    for (const Trial& trial : kernel.trials) CHECK(trial.problem == "");
    trials += kernel.trials.size();
  }
  CHECK(trials > 0);
  // Replays the file's text.
  Database read("");
  for (const Entry& entry : parse_contents(file_text(database.contents()), "text").entries)
    read.append(entry);

  fake_cuda()->devices = 0;
  Options replay{.database = &read, .frozen = true, .shapes = {{{"n", 64}}}};
  const Result again = tune::tune(p, target(), replay);
  CHECK(again.chosen == first.chosen);
  for (const Tuned& kernel : again.kernels) CHECK(kernel.origin == Tuned::Origin::kDatabase);

  // Without a GPU, existing entries are used; the rest keep the model's choice, with the reason.
  replay.frozen = false, replay.measure = true;
  CHECK(tune::tune(p, target(), replay).problem == "");
  replay.shapes = {{{"n", 4000}}};
  const Result none = tune::tune(p, target(), replay);
  CHECK(none.chosen.empty());
  CHECK(none.problem.find("cannot be initialised") != std::string::npos);
  replay.frozen = true;
  CHECK(message([&] { tune::tune(p, target(), replay); }).find("has no entry") != std::string::npos);
}

TEST_CASE("entries of another device are used where there is none, and do not prevent measuring") {
  const Device device;
  const loop::Program p = program();
  Database database("");
  Options options{.database = &database, .measure = true, .shapes = {{{"n", 64}}}, .seconds = 1};
  tune::tune(p, target(), options);
  Database other("");
  for (Entry entry : database.entries()) {
    entry.key.device = "Another_GPU";
    other.append(entry);
  }
  options.database = &other, options.measure = false;
  CHECK(tune::tune(p, target(), options).kernels[0].origin == Tuned::Origin::kDatabase);
}

TEST_CASE("a product that is tuned for few rows and for many gets another kernel for each") {
  const Device device;
  const loop::Program p = loop::parse_program(test::matmul_case("f16", "m", "768", "768", false).text);
  loop::Program first = p;
  first.nests[0].schedule = schedule::default_schedule(p, p.nests[0], target());
  REQUIRE(loop::to_string(first.nests[0].schedule).find("below") != std::string::npos);
  // The default's kernels take 20 microseconds, all others 10.
  const auto take = [](const FakeLaunch*, void* user) {
    fake_cuda()->clock += *static_cast<const double*>(user) - 1;
  };
  static double slow = 20, fast = 10;
  fake_cuda_register(nullptr, take, &fast);
  for (const auto& choice : codegen::cuda::emit_nest(first, first.nests[0], target()).choices)
    for (const auto& kernel : choice.launches)
      fake_cuda_register(codegen::cuda::named(kernel, target()).symbol.c_str(), take, &slow);
  Database database("");
  Options options{.database = &database, .measure = true, .shapes = {{{"m", 1}}, {{"m", 16384}}}};
  const Result result = tune::tune(p, target(), options);
  REQUIRE(result.kernels.size() == 1);
  const Entry& entry = result.kernels[0].entry;
  CHECK(entry.default_microseconds == doctest::Approx(20).epsilon(0.01));
  CHECK(entry.microseconds == doctest::Approx(10).epsilon(0.01));
  CHECK(schedule::refusal(p, p.nests[0], target(), loop::parse_schedule(entry.schedule)).empty());
}

TEST_CASE("attention's default is one of its candidates, whatever its size and mask") {
  const test::FlashCase cases[] = {{.bias = "load"},
                                   {.bias = "causal"},
                                   {.depth = 128, .width = 128},
                                   {.depth = 256, .width = 256, .bias = "load"},
                                   {.depth = 40, .width = 72, .guard = true}};
  for (const test::FlashCase& each : cases)
    for (const char* name : {"sm_90a", "sm_80"}) {
      const loop::Program p = loop::parse_program(test::flash_text(each));
      const auto space = schedule::candidates(p, p.nests[0], gpu_target(name), {});
      REQUIRE(!space.empty());
      CHECK(space[0].schedule == schedule::default_schedule(p, p.nests[0], gpu_target(name)));
    }
}

TEST_CASE("attention's candidates are its default and other tiles, which are emitted and built") {
  std::vector<codegen::cuda::BuiltKernel> kernels;
  for (const char* name : {"sm_90a", "sm_80"})
    for (const char* rows : {"65536", "4"}) {
      const GpuTarget& gpu = gpu_target(name);
      std::string text = test::flash_text({});
      const auto bound = [&](const std::string& symbol, const std::string& range) {
        const size_t at = text.find(symbol) + symbol.size();
        text.replace(at, text.find('\n', at) - at, range);
      };
      bound("symbol s = input 0 dim 2 in ", std::string("1..") + rows);
      bound("symbol past = input 3 dim 3 in ", "2048..65536");
      bound("symbol b = input 0 dim 0 in ", "1..1");
      const loop::Program p = loop::parse_program(text);
      const auto space = schedule::candidates(p, p.nests[0], gpu, {});
      REQUIRE(space.size() > 1);
      CHECK(space[0].schedule == schedule::default_schedule(p, p.nests[0], gpu));
      for (const auto& candidate : space) {
        CHECK(schedule::refusal(p, p.nests[0], gpu, candidate.schedule).empty());
        loop::Program one = p;
        one.nests[0].schedule = candidate.schedule;
        for (const auto& choice : codegen::cuda::emit_nest(one, one.nests[0], gpu).choices)
          for (const auto& kernel : choice.launches) kernels.push_back(codegen::cuda::named(kernel, gpu));
      }
    }
  std::vector<codegen::cuda::BuiltKernel*> all;
  for (auto& kernel : kernels) all.push_back(&kernel);
  for (const auto& error : codegen::cuda::compile_kernels(all)) CHECK_MESSAGE(!error, error->message);
}

TEST_CASE(
    "candidates of a GPU are legal: each is in the space whatever the sizes, and is emitted and built") {
  const loop::Program p = program();
  std::set<std::string> texts;
  std::vector<codegen::cuda::BuiltKernel> kernels;
  for (const loop::Nest& nest : p.nests) {
    const auto space = schedule::candidates(p, nest, target(), sizes(64));
    REQUIRE(!space.empty());
    CHECK(space[0].schedule == schedule::default_schedule(p, nest, target()));
    for (size_t i = 0; i < space.size(); ++i) {
      CHECK(schedule::refusal(p, nest, target(), space[i].schedule).empty());
      CHECK(loop::parse_schedule(loop::to_string(space[i].schedule)) == space[i].schedule);
      for (size_t j = 0; j < i; ++j) CHECK(!(space[i].schedule == space[j].schedule));
      if (&nest != &p.nests[0] && &nest != &p.nests.back()) continue;
      loop::Program one = p;
      one.nests[static_cast<size_t>(&nest - p.nests.data())].schedule = space[i].schedule;
      schedule::order_weights(one);
      const auto made =
          codegen::cuda::emit_nest(one, one.nests[static_cast<size_t>(&nest - p.nests.data())], target());
      for (const auto& choice : made.choices)
        for (const auto& kernel : choice.launches)
          if (i % 8 == 0 && texts.insert(kernel.code.text).second)
            kernels.push_back(codegen::cuda::named(kernel, target()));
    }
    loop::Schedule odd = space.back().schedule;
    odd.directives.push_back({"below", {"100", "wgmma.0x0", "1"}});
    CHECK(schedule::refusal(p, nest, target(), odd).find("'below 100 wgmma.0x0 1' does not apply") == 0);
  }
  std::vector<codegen::cuda::BuiltKernel*> all;
  for (auto& kernel : kernels) all.push_back(&kernel);
  for (const auto& error : codegen::cuda::compile_kernels(all)) CHECK_MESSAGE(!error, error->message);
}

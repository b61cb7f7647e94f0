// Strips of rows as machine code.
#include "compiler/schedule/row_strips.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose.h"
#include "compiler/schedule/strips.h"
#include "compiler/schedule/winograd.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// -1, 0 and 1 times a power of two that keeps sums near 1. With whole numbers as inputs sums are exact in any order.
void set_to_few_bits(loop::Buffer& weight) {
  auto data = std::make_shared<std::vector<float>>(weight.weight.size / sizeof(float));
  const double terms =
      static_cast<double>(data->size()) / static_cast<double>(*sym::as_const(weight.shape[0]));
  const int power = static_cast<int>(std::round(std::log2(terms) / 2));
  std::mt19937 random(3);
  for (float& f : *data) f = std::ldexp(static_cast<float>(random() % 3) - 1, -power);
  weight.weight = {data, reinterpret_cast<const uint8_t*>(data->data()), data->size() * sizeof(float)};
}

}  // namespace

TEST_CASE("strips of rows compute what whole buffers do, on any number of threads") {
  struct Case {
    std::vector<Layer> layers;
    bool transforms = false;
    size_t nests = 2;  // of the first strips
  };
  for (const Case& given : {Case{{{64}, {64, 3, 2, 1, 1}, {8}}}, Case{{{64}, {64, 3, 1, 2, 2}, {8}}},
                            Case{{{64}, {64}, {64, 3, 1, 1, 1}, {.out = 64, .adds = 1}, {8}}},
                            Case{{{64}, {64, 3, 1, 1, 1}, {64}, {8}}, true, 5},
                            Case{{{64},
                                  {64},
                                  {64, 3, 2, 1, 1},
                                  {.out = 256, .stride = 2, .from = 1},
                                  {.out = 256, .from = 3, .adds = 4},
                                  {512}}}}) {
    loop::Program before = convolutions(40, 2, given.layers);
    for (loop::Buffer& buffer : before.buffers)
      if (buffer.storage == loop::Storage::kWeight) set_to_few_bits(buffer);
    loop::Program after = before;
    if (given.transforms) schedule::apply_winograd(after);
    schedule::fuse_row_strips(after);
    REQUIRE(!loop::strips_of(after).empty());
    CHECK(loop::strips_of(after)[0]->body.size() == given.nests);
    for (const char* name : {"x86-64-v3", "native"}) {
      const CpuTarget target = cpu_target(name);
      codegen::cpu::RunCompiledOptions one{.target = target, .parts = 1}, three{.target = target};
      loop::Program scheduled = after;
      schedule::choose(scheduled, target, {});
      codegen::cpu::CompiledProgram serial(scheduled, one), shared(scheduled, three);
      for (const auto& [images, rows] : {std::pair<int64_t, int64_t>{1, 5}, {1, 20}, {3, 45}, {0, 30}}) {
        CAPTURE(cat(name, " ", given.layers.size(), " ", images, " ", rows));
        auto inputs = random_inputs(before, {{sym::var("m"), images}, {sym::var("n"), rows}}, 7);
        for (int64_t i = 0; i < loop::element_count(inputs[0]); ++i)
          loop::set_number(inputs[0], i, std::round(loop::get_number(inputs[0], i)));
        const auto want = loop::interpret(before, inputs), got = serial.run(inputs);
        CHECK(close(got, want, given.transforms ? 1e-4 : 0));
        CHECK(shared.run(inputs)[0].bytes == got[0].bytes);
      }
    }
  }
}

// Tiled groups of rows (depth-first convolutions) as machine code.
#include "compiler/schedule/fusion/depth_first.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/codegen/cpu/tile_and_fuse.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/winograd.h"
#include "compiler/schedule/fusion/reduce_peak.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"
#include "compiler/schedule/heuristics/choose.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::testing;

namespace {

// -1, 0 and 1 times a power of two that keeps sums near 1. With integer inputs, sums are exact in any order.
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
    size_t nests = 2;  // of the first tiled group
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
      if (buffer.storage == loop::Storage::kParameter) set_to_few_bits(buffer);
    loop::Program after = before;
    if (given.transforms) schedule::apply_winograd(after);
    loop::eliminate_dead_code(after);
    schedule::fuse_depth_first(after);
    REQUIRE(!loop::tiled_groups_of(after).empty());
    CHECK(loop::tiled_groups_of(after)[0]->body.size() == given.nests);
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

TEST_CASE("a strip's kernel moves the rows that it takes over, and runs each of its nests from end to end") {
  const auto text_of = [](std::vector<Layer> layers, size_t& carried, size_t& nests) {
    loop::Program program = convolutions(40, 4, layers);
    schedule::reduce_peak(program);
    schedule::choose(program, cpu_target("x86-64-v3"), {});
    const auto all = loop::tiled_groups_of(program);
    REQUIRE(!all.empty());
    carried = all[0]->carried.size(), nests = all[0]->body.size();
    return codegen::cpu::emit_tiled_group(program, *all[0], cpu_target("x86-64-v3")).text;
  };
  const auto count = [](const std::string& in, const std::string& what) {
    size_t found = 0;
    for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++found;
    return found;
  };
  size_t carried = 0, nests = 0;
  const std::string moves = text_of({{64}, {64, 3, 1, 1, 1}, {64, 5, 1, 1, 2}, {8}}, carried, nests);
  CHECK(carried == 2);
  CHECK(count(moves, "__builtin_memmove(") == carried);
  // The first tile of a range carries nothing over.
  for (size_t k = 0; k < carried; ++k)
    CHECK(count(moves, cat("int64_t end", k, " = 0, base", k, " = 0;")) == 1);
  CHECK(count(moves, "== 0 ? 0 : end") == carried);
  // One thread runs all tasks of a nest.
  CHECK(count(moves, "(&a, 0, ") == nests);
  // Tiles of rows that do not overlap carry nothing over.
  const std::string apart = text_of({{64}, {64}, {64, 2, 2, 1, 0}, {8}}, carried, nests);
  CHECK(carried == 0);
  CHECK(count(apart, "__builtin_memmove(") == 0);
  CHECK(count(apart, "(&a, 0, ") == nests);
}

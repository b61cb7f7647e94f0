// Convolutions on tile registers that copy input rows once for several window positions.
#include <doctest/doctest.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/gemm_lines.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "tests/support/contraction_check.h"
#include "tests/support/contraction_harness.h"
#include "tests/support/tiles.h"

using namespace stridec;
using namespace stridec::test;
using kernels::GemmPlan;

namespace {

struct Elements {
  DType data, weights, sum;
};
constexpr Elements kElements[] = {{DType::kU8, DType::kI8, DType::kI32},
                                  {DType::kI8, DType::kI8, DType::kI32},
                                  {DType::kBF16, DType::kBF16, DType::kF32}};

// Checks every choice of the shared window position, in tasks of few and of many tiles, by rows and by
// columns.
void check_lines(Conv c, const Elements& elements, bool expected = true) {
  c.data = elements.data, c.weights = elements.weights, c.sum = elements.sum;
  if (elements.sum == DType::kI32) c.fill = 5;
  loop::Program program;
  const sym::Expr batch = symbol(program, "batch", 1, 64);
  const Case made = conv(batch, c, std::move(program));
  const CpuTarget tiled = target_with_tiles();
  std::vector<std::pair<std::string_view, sym::Expr>> seen;
  for (const auto& ranked : schedule::contraction_space(made.program, made.program[made.nest], tiled)) {
    GemmPlan plan = ranked.plan;
    if (plan.a != GemmPlan::A::kLines) continue;
    CHECK(plan.kernel->tiles);
    bool fresh = true;
    for (const auto& [kernel, tap] : seen)
      fresh = fresh && !(kernel == plan.kernel->name && tap == plan.segments[0]);
    if (!fresh) continue;
    seen.emplace_back(plan.kernel->name, plan.segments[0]);
    for (const auto& [tiles, chunk] : {std::pair<int64_t, int64_t>{1, 0}, {3, 70}, {64, 0}}) {
      plan.tiles = tiles, plan.chunk = chunk, plan.rows_outer = !plan.rows_outer;
      check_plan(made, plan, tiled, {{{batch, 1}}, {{batch, 3}}});
    }
  }
  CHECK(seen.empty() != expected);
}

}  // namespace

TEST_CASE("rows on tile registers are copied once for places of a window that see the same lines") {
  const Conv convs[] = {
      {.in = {9, 10}, .kernel = {3, 3}, .channels = 64, .filters = 20, .pad = 1, .residual = true},
      {.in = {13, 12}, .kernel = {3, 3}, .channels = 64, .filters = 9, .stride = 2, .pad = 1},
      {.in = {12, 15}, .kernel = {5, 3}, .channels = 64, .filters = 33, .stride = 3, .dilation = 2, .pad = 2},
      {.in = {7, 11}, .kernel = {3, 2}, .channels = 128, .filters = 40, .dilation = 2},
      {.in = {6, 7}, .kernel = {2, 4}, .channels = 16, .filters = 16, .pad = 2},
      {.in = {45}, .kernel = {5}, .channels = 64, .filters = 20, .stride = 2, .pad = 3},
      {.in = {4, 5, 6}, .kernel = {3, 2, 3}, .channels = 64, .filters = 12, .pad = 1},
      {.in = {8, 9}, .kernel = {3, 3}, .channels = 128, .filters = 30, .groups = 2, .pad = 1},
  };
  size_t turn = 0;
  for (const Conv& c : convs) check_lines(c, kElements[turn++ % std::size(kElements)]);
  // Positions without common elements, and channels that are not whole steps.
  for (const Elements& elements : kElements) {
    check_lines({.in = {9, 9}, .kernel = {2, 2}, .channels = 64, .filters = 8, .stride = 2}, elements, false);
    check_lines({.in = {9, 9}, .kernel = {3, 3}, .channels = 12, .filters = 8, .pad = 1}, elements, false);
  }
}

TEST_CASE("a window's places share a copy where they are whole steps apart") {
  const auto lines = [](int64_t stride, int64_t dilation) {
    loop::Program program;
    const Case made = conv(2,
                           {.in = {19, 20},
                            .kernel = {5, 5},
                            .channels = 4,
                            .filters = 4,
                            .stride = stride,
                            .dilation = dilation,
                            .pad = 2},
                           std::move(program));
    const loop::Nest& nest = made.program[made.nest];
    const auto contraction = kernels::match_contraction(nest);
    const std::vector<loop::Dim> rows = {nest.dims[0], nest.dims[2], nest.dims[3]};
    const auto a = kernels::as_elements(nest, contraction->factors[0], DType::kF32);
    return kernels::match_lines(a->load->access, rows, contraction->reduce->dims[1],
                                kernels::facts_in(made.program, nest, *contraction));
  };
  const auto plain = lines(1, 1);
  REQUIRE(plain);
  CHECK(plain->row == 1);
  REQUIRE(plain->copies.size() == 1);
  CHECK(plain->copies[0].lines == 4);
  const auto strided = lines(2, 3);  // places 0, 3, 6, 9, 12
  REQUIRE(strided);
  REQUIRE(strided->copies.size() == 2);
  CHECK(strided->copies[1].tap == 1);
  CHECK(strided->copies[0].lines == 6);
  CHECK(strided->copies[1].lines == 3);
  CHECK(strided->taps[3].copy == 1);
  CHECK(strided->taps[3].shift == 3);
  const auto even = lines(2, 2);  // places 0, 2, ... of every other element
  REQUIRE(even);
  CHECK(even->copies.size() == 1);
  CHECK(!lines(5, 1));
}

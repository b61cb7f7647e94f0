#include "tests/support/contraction_check.h"

#include <doctest/doctest.h>

#include <random>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "tests/support/contraction_harness.h"
#include "tests/support/sample.h"
#include "tests/support/tiles.h"

namespace stridec::test {

size_t drawn(size_t count) {
  static std::mt19937 random(7);
  return random() % count;
}

Case conv(sym::Expr batch, const Conv& c, loop::Program program) {
  const size_t rank = c.in.size();
  std::vector<sym::Expr> in = {batch, c.channels}, out = {batch, c.filters},
                         weight = {c.filters, c.channels / c.groups};
  for (size_t d = 0; d < rank; ++d) {
    in.push_back(c.in[d]);
    out.push_back((c.in[d] + 2 * c.pad - c.dilation * (c.kernel[d] - 1) - 1) / c.stride + 1);
    weight.push_back(c.kernel[d]);
  }
  const loop::View x =
      buffer(program, "x", in, loop::Storage::kInput, c.data, strides_of(in, c.channels_last));
  const loop::View w = buffer(program, "w", weight, loop::Storage::kInput, c.weights);
  const loop::View bias = buffer(program, "bias", {c.filters}, loop::Storage::kInput, c.sum);
  const loop::View residual =
      buffer(program, "residual", out, loop::Storage::kInput, c.sum, strides_of(out, c.channels_last));
  const loop::View y =
      buffer(program, "y", out, loop::Storage::kArena, c.sum, strides_of(out, c.channels_last));
  loop::NestBuilder nb(program, cat("conv", rank, "d"));
  std::vector<sym::Expr> i = {nb.dim(batch)};
  const sym::Expr group = c.groups > 1 ? nb.dim(c.groups) : sym::Expr(0);
  const sym::Expr filter = nb.dim(c.filters / c.groups);
  const sym::Expr channel_out = group * (c.filters / c.groups) + filter;
  i.push_back(channel_out);
  for (size_t d = 0; d < rank; ++d) i.push_back(nb.dim(out[2 + d]));
  std::vector<sym::Expr> extents(weight.begin() + 1, weight.end());
  loop::Value sum = nb.reduce(loop::Combine::kSum, extents, [&](const std::vector<sym::Expr>& k) {
    loop::Access from{.buffer = x.buffer, .index = {i[0], group * (c.channels / c.groups) + k[0]}};
    std::vector<sym::Expr> inside;
    std::vector<sym::Expr> at = {channel_out, k[0]};
    for (size_t d = 0; d < rank; ++d) {
      const sym::Expr position = i[2 + d] * c.stride + k[1 + d] * c.dilation - c.pad;
      from.index.push_back(position);
      if (c.pad) inside.push_back(sym::logical_and(sym::ge(position, 0), sym::lt(position, c.in[d])));
      at.push_back(k[1 + d]);
    }
    from.mask = sym::logical_and(inside);
    return nb.cast(nb.load(from, loop::int_scalar(c.data, c.fill)), c.sum) * nb.cast(nb.load(w, at), c.sum);
  });
  sum = sum + nb.load(bias, {channel_out});
  if (c.residual) sum = sum + nb.load(residual, i);
  nb.store(y, i, max(sum, nb.constant(c.sum, 0)));
  const loop::NestId id = nb.finish();
  return {std::move(program), id};
}

void check_plan(const Case& c, const kernels::GemmPlan& plan, const CpuTarget& target,
                const std::vector<loop::Bindings>& shapes) {
  loop::Nest nest = c.program[c.nest];
  kernels::GemmPlan unpacked = plan;
  // The program's weights are not packed; kernels that widen them read nothing else.
  if (plan.kernel->widens_b()) return;
  if (plan.b == kernels::GemmPlan::B::kWeights) unpacked.b = kernels::GemmPlan::B::kStage;
  nest.schedule = kernels::to_schedule(unpacked);
  CAPTURE(nest.name);
  CAPTURE(target.name);
  CAPTURE(loop::to_string(nest.schedule));
  const codegen::Kernel emitted = codegen::cpu::emit_contraction(c.program, nest, target);
  INFO(emitted.text);
  const CompiledKernel kernel(emitted, target);
  for (const loop::Bindings& shape : shapes) {
    Memory expected(c.program, shape), actual(c.program, shape), shared(c.program, shape);
    auto views = expected.views();
    loop::interpret(c.program, nest, shape, views);
    kernel.run(c.program, shape, actual.views(), 1);
    const double error = difference(c.program, nest, actual, expected);
    CHECK(error < 1e-5);
    CHECK_FALSE(kernel.meets_subnormals(shape, shared.views(), 3));
    CHECK(difference(c.program, nest, shared, actual) == 0);
  }
}

void check(const Case& c, const std::vector<loop::Bindings>& shapes) {
  const CpuTarget& native = cpu_target("native");
  const auto plans = schedule::contraction_plans(c.program, c.program[c.nest], native);
  REQUIRE(!plans.empty());
  for (const auto& ranked : plans) {
    const std::string text =
        cat(loop::to_string(c.program), loop::to_string(kernels::to_schedule(ranked.plan)));
    if (&ranked == &plans.front() || in_sample(text, 2)) check_plan(c, ranked.plan, native, shapes);
  }
  kernels::GemmPlan pieces = plans[0].plan;
  pieces.chunk = 5;
  pieces.tiles = 3;
  pieces.rows_outer = !pieces.rows_outer;
  check_plan(c, pieces, native, shapes);
  constexpr int kDraws = 3;
  const auto space = schedule::contraction_space(c.program, c.program[c.nest], native);
  for (int draw = 0; draw < kDraws; ++draw) check_plan(c, space[drawn(space.size())].plan, native, shapes);
  const CpuTarget tiled = target_with_tiles();
  bool first = true;
  for (const auto& ranked : schedule::contraction_plans(c.program, c.program[c.nest], tiled)) {
    if (!ranked.plan.kernel->tiles) continue;
    check_plan(c, ranked.plan, tiled, shapes);
    pieces = ranked.plan;
    pieces.chunk = 5;
    pieces.tiles = 3;
    pieces.rows_outer = !pieces.rows_outer;
    if (first) check_plan(c, pieces, tiled, shapes);
    first = false;
  }
  for (const CpuTarget& target : cpu_targets()) {
    if (target.vector_bytes >= native.vector_bytes || target.tune != "generic") continue;
    const auto others = schedule::contraction_plans(c.program, c.program[c.nest], target);
    REQUIRE(!others.empty());
    check_plan(c, others[0].plan, target, shapes);
  }
}

}  // namespace stridec::test

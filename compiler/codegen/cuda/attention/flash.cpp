#include "compiler/codegen/cuda/attention/flash.h"

#include <algorithm>

#include "compiler/codegen/cuda/attention/flash_mma.h"
#include "compiler/codegen/cuda/attention/flash_wgmma.h"
#include "compiler/schedule/heuristics/flash.h"

namespace stridec::codegen::cuda {

using sym::Expr;

namespace {

// Adds the wgmma choices; returns whether they cover all remaining cases.
bool add_warp_groups(DeviceNest& out, const loop::Program& program, const loop::Nest& nest,
                     const kernels::Flash& flash, bool assumes, const GpuTarget& target) {
  kernels::FlashPlan plan = kernels::to_flash_plan(nest.schedule);
  if (flash.given && !assumes) plan.rows = std::min(plan.rows, 128);  // scores take registers
  bool all = false;
  for (const auto& [tile, holds] : kernels::wgmma_choices(plan, flash, target)) {
    auto choice = emit_flash_wgmma(program, nest, tile, assumes, target);
    all = choice.has_value();
    if (!choice) continue;
    choice->condition = sym::simplify(sym::logical_and(choice->condition, holds), program.facts);
    if (!choice->condition.is_const(0)) out.choices.push_back(*std::move(choice));
  }
  return all;
}

}  // namespace

DeviceNest emit_flash(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const kernels::FlashPlan plan = kernels::to_flash_plan(nest.schedule);
  const kernels::Flash flash = *kernels::match_flash(program, nest);
  const std::vector<kernels::FlashChoice> plans = kernels::mma_choices(plan, flash, target, program.facts);
  const auto add = [&](const kernels::FlashPlan& tile, Expr holds, bool wide, bool assumes,
                       const loop::Nest& nest) {
    MmaEmitter emitter(program, nest, tile, wide, assumes);
    const auto able = emitter.condition();
    if (!able) return;
    const Expr condition = sym::simplify(sym::logical_and(*able, holds), program.facts);
    if (condition.is_const(0)) return;
    DeviceChoice& choice = out.choices.emplace_back();
    choice.condition = condition;
    if (wide) choice.aligned = emitter.buffers();
    choice.launches.push_back(tile.spread ? emitter.emit_spread(target) : emitter.emit(target));
  };
  // Heads that share keys read them once if they have few rows together.
  const auto shared =
      plan.parts() == 1 && plans.size() > 1 ? schedule::with_shared_rows(program, nest) : std::nullopt;
  if (shared) {
    const kernels::Flash rows = *kernels::match_flash(program, *shared);
    const std::vector<kernels::FlashChoice> few = kernels::mma_choices(plan, rows, target, program.facts);
    if (few[0].plan.spread) add(few[0].plan, few[0].condition, true, false, *shared);
  }
  for (const bool assumes : {true, false}) {
    if (assumes && !flash.given) continue;
    for (const auto& [tile, holds] : plans) {
      // Plans without a split of the keys are tried after the wgmma choices.
      if (tile.parts() == 1 && plan.wgmma && add_warp_groups(out, program, nest, flash, assumes, target))
        break;
      add(tile, holds, true, assumes, nest);
    }
  }
  const bool none = out.choices.empty();
  for (const auto& [tile, holds] : plans)
    if (none || &tile == &plans.back().plan) add(tile, holds, false, false, nest);
  return out;
}

}  // namespace stridec::codegen::cuda

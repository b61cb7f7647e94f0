#include "compiler/schedule/choose_flash.h"

#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/fusion.h"

namespace stridec::schedule {
namespace {

using kernels::FlashPlan;
using sym::Expr;

// Scratch that lies along another dim than `var` is laid along it: what a factor of a chain is copied from.
void lay_along(loop::Program& program, const kernels::Factor& factor, Expr var) {
  if (factor.slice.empty()) return;
  const auto* load = std::get_if<loop::Load>(&factor.slice[0]->node);
  if (!load || program[load->access.buffer].storage != loop::Storage::kArena) return;
  loop::Buffer& buffer = program[load->access.buffer];
  if (buffer.strides != loop::row_major(buffer.shape)) return;  // someone has chosen already
  const auto& index = load->access.index;
  const auto found = std::find(index.begin(), index.end(), var);
  if (found == index.end() || found + 1 == index.end()) return;
  const auto at = static_cast<size_t>(found - index.begin());
  Expr stride = buffer.shape[at];
  for (size_t d = index.size(); d-- > 0;) {
    if (d == at) continue;
    buffer.strides[d] = stride;
    stride *= buffer.shape[d];
  }
  buffer.strides[at] = 1;
}

// Tiles of `large` rows are worth what they share where they do not compute many more rows than tiles of `small` do.
bool fills(Expr rows, int64_t large, int64_t small) {
  constexpr double kWorth = 1.1;
  const auto count = sym::as_const(rows);
  if (!count) return true;
  const auto computed = [&](int64_t tile) { return static_cast<double>((*count + tile - 1) / tile * tile); };
  return computed(large) <= kWorth * computed(small);
}

}  // namespace

std::vector<FlashPlan> flash_plans(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target) {
  const auto flash = kernels::match_flash(program, nest);
  if (!flash) return {};
  const int64_t widest = std::max(flash->depth, flash->width);
  std::vector<FlashPlan> plans;
  for (const auto& [rows, keys] : {std::pair(192, 128), std::pair(128, 128), std::pair(128, 64)}) {
    const FlashPlan plan{.wgmma = true, .rows = rows, .keys = keys};
    const bool registers = rows == 192 ? widest <= 64 && !flash->biased : keys == 64 || widest <= 128;
    if (target.wgmma && registers && kernels::stages(plan, *flash) >= 2) plans.push_back(plan);
  }
  for (const FlashPlan& plan : kernels::mma_tiles())
    if (kernels::shared_bytes(plan, *flash) <= target.shared_bytes) plans.push_back(plan);
  return plans;
}

std::optional<FlashPlan> choose_flash(const loop::Program& program, const loop::Nest& nest,
                                      const GpuTarget& target, std::string* reason) {
  const auto flash = kernels::match_flash(program, nest, reason);
  if (!flash) return std::nullopt;
  // Few rows do not fill the tiles of warp groups.
  const bool few = typical(flash->chain.row.extent, loop::facts_of(program, nest)) <= 64;
  if (target.wgmma && !few) {
    FlashPlan plan{.wgmma = true, .rows = 128, .keys = 128};
    if (flash->depth <= 64 && flash->width <= 64 && !flash->biased &&
        fills(flash->chain.row.extent, 192, 128))
      plan.rows = 192;  // registers for no more
    if (flash->depth > 128 || flash->width > 128) plan.keys = 64;
    if (kernels::stages(plan, *flash) >= 2) return plan;
  }
  if (const auto plan = kernels::mma_plan(*flash, target.shared_bytes, few ? 64 : 128)) return plan;
  if (reason) *reason = "its tiles do not fit shared memory";
  return std::nullopt;
}

void chain_gpu(loop::Program& program, const GpuTarget& target) {
  ChainRule rule{.fits = {}, .absorbs = false};
  rule.fits = [&](loop::Program& trial, const loop::Nest& nest, std::string* reason) {
    if (const auto chain = kernels::match_chain(nest))
      for (const kernels::Chain::Part& part : chain->parts) {
        if (!part.link || part.columns.size() != 1) continue;
        const auto contraction = kernels::match_contraction(part.nest);
        const kernels::LinkFactors factors = *kernels::link_factors(*contraction, part.columns);
        const bool first = &part == &chain->parts.front();
        lay_along(trial, contraction->factors[factors.columns],
                  first ? contraction->reduce->dims[0].var : part.columns[0].var);
      }
    return choose_flash(trial, nest, target, reason).has_value();
  };
  chain(program, rule);
}

}  // namespace stridec::schedule

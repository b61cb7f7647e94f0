#include "compiler/schedule/choose_flash.h"

#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/fusion.h"

namespace stridec::schedule {
namespace {

using kernels::FlashPlan;
using sym::Expr;

// The best first. Half of the multiprocessor is left to a second block where that is to be had.
constexpr FlashPlan kTiles[] = {
    {.rows = 128, .keys = 64}, {.rows = 64, .keys = 64}, {.rows = 64, .keys = 32}, {.rows = 64, .keys = 16}};

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

}  // namespace

std::optional<FlashPlan> choose_flash(const loop::Program& program, const loop::Nest& nest,
                                      const GpuTarget& target, std::string* reason) {
  const auto flash = kernels::match_flash(program, nest, reason);
  if (!flash) return std::nullopt;
  const double rows = typical(flash->chain.row.extent, loop::facts_of(program, nest));
  for (const FlashPlan& plan : kTiles) {
    if (kernels::shared_bytes(plan, *flash) > target.shared_bytes) continue;
    if (plan.rows > 64 && rows <= 64) continue;
    return plan;
  }
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

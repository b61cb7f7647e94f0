#include "compiler/schedule/heuristics/chain.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/sort.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/gemm_cost.h"
#include "compiler/schedule/heuristics/loop_nest.h"

namespace stridec::schedule {
namespace {

using kernels::GemmPlan;

// Rows of a block, the default first: enough to amortise a block's setup, few enough that heads times blocks
// give enough tasks.
constexpr int64_t kTiles[] = {48, 24, 32, 64, 96};
// factor on the cycles of another tile: the gain that the model has to expect
constexpr double kOtherTile = 1.02;
constexpr size_t kKernels = 3;  // register tiles to try per link
constexpr double kTileCall = 42, kTask = 100;

struct Link {
  kernels::ChainPlan::Link plan;
  double columns = 1, k = 1;
  std::vector<const kernels::GemmKernel*> kernels;
};

// Cycles of the link's GEMM for one block of rows.
double block_cycles(const Link& link, const kernels::GemmKernel& kernel, double block_rows,
                    const CpuTarget& target) {
  const double tiles = std::ceil(block_rows / kernel.rows), rows = block_rows / tiles;
  const double panels = std::ceil(link.columns / kernel.columns());
  const double tile = sum_cycles(kernel, rows, link.k, false, target) + kTileCall +
                      tile_call_cycles(kernel, rows) + rows * kernel.line_vectors() * kEpilogueVector;
  return panels * tiles * tile + (kernel.tiles ? kShape : 0);
}

// Rows that an earlier part left contiguous in scratch are read in place.
GemmPlan::A rows_from(const loop::Program& program, const kernels::Contraction& contraction,
                      const kernels::Factor& rows) {
  if (!rows.load || contraction.reduce->dims.size() != 1) return GemmPlan::A::kPack;
  const loop::Access& access = rows.load->access;
  if (program[access.buffer].storage != loop::Storage::kLocal || !access.mask.is_const(1))
    return GemmPlan::A::kPack;
  const auto step =
      sym::linear_in(kernels::offset_of(program, access, program.facts), contraction.reduce->dims[0].var);
  return step && step->coefficient.is_const(1) ? GemmPlan::A::kDirect : GemmPlan::A::kPack;
}

}  // namespace

std::vector<RankedChainPlan> chain_space(const loop::Program& program, const loop::Nest& nest,
                                         const CpuTarget& target) {
  const auto chain = kernels::match_chain(nest);
  if (!chain) return {};
  kernels::ChainPlan plan;
  plan.row = chain->row.var;
  plan.bytes = target.l2_bytes / 2;
  std::vector<Link> links;
  for (const kernels::Chain::Part& part : chain->parts) {
    if (!part.link) {
      // Plans one row by itself: the loops within it are vectorised.
      loop::Nest row = part.nest;
      for (loop::Dim& dim : row.dims) dim.extent = 1;
      const LoopPlan loops = general_plan(program, row, target);
      for (loop::Directive& directive :
           directives({.width = loops.width, .accumulators = loops.accumulators}))
        plan.inner.push_back(std::move(directive));
      continue;
    }
    const kernels::Chain::Link& matched = *part.link;
    const kernels::Contraction& contraction = matched.contraction;
    Link link;
    link.plan.column = matched.columns[0].var;
    link.plan.a = rows_from(program, contraction, matched.row_factor());
    link.columns = typical(matched.columns.back().extent, program.facts);
    for (const loop::Dim& dim : contraction.reduce->dims) link.k *= typical(dim.extent, program.facts);
    for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
      const bool fits = kernel.dtype == contraction.dtype && kernel.runs_on(target) && !kernel.deep &&
                        !kernel.pairs &&
                        kernels::as_elements(part.nest, matched.row_factor(), kernel.a).has_value() &&
                        kernels::as_elements(part.nest, matched.column_factor(), kernel.b).has_value();
      if (fits) link.kernels.push_back(&kernel);
    }
    if (link.kernels.empty()) return {};
    sort_stable(link.kernels, [&](const auto* x, const auto* y) {
      return block_cycles(link, *x, kTiles[0], target) < block_cycles(link, *y, kTiles[0], target);
    });
    if (link.kernels.size() > kKernels) link.kernels.resize(kKernels);
    links.push_back(std::move(link));
  }
  if (links.size() < 2) return {};

  const double points =
      std::max(1.0, typical(chain->row.extent, program.facts)) * typical_points(chain->batch, program.facts);
  std::vector<RankedChainPlan> space;
  for (const int64_t tile : kTiles) {
    plan.tile = tile;
    // All combinations of register tiles of the links.
    std::vector<size_t> pick(links.size());
    for (bool more = true; more;) {
      double cycles = kTask;
      plan.links.clear();
      for (size_t i = 0; i < links.size(); ++i) {
        links[i].plan.kernel = links[i].kernels[pick[i]];
        plan.links.push_back(links[i].plan);
        cycles += block_cycles(links[i], *links[i].plan.kernel, static_cast<double>(tile), target);
      }
      cycles *= points / static_cast<double>(tile) * (tile == kTiles[0] ? 1 : kOtherTile);
      space.push_back({plan, cycles});
      more = false;
      for (size_t i = links.size(); i-- > 0 && !more;) {
        more = ++pick[i] < links[i].kernels.size();
        if (!more) pick[i] = 0;
      }
    }
  }
  sort_stable(space, [](const auto& x, const auto& y) { return x.cycles < y.cycles; });
  return space;
}

}  // namespace stridec::schedule

#include "compiler/kernels/group_results.h"

#include <algorithm>

#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {

GroupRegisters::GroupRegisters(const MatrixKernel& kernel, DType element, bool gathers) : kernel_(kernel) {
  constexpr int kOthers = 36, kFile = 65536, kMost = 255, kLoads = 8;
  const int groups = kernel.workers() / 128,
            share = std::min(kMost, kFile / (kernel.threads() * kernel.blocks_sm));
  for (parts_ = !adds_steps(kernel, element) ? 0 : gathers ? 1 : 2;; --parts_) {
    const int held = kernel.sums() * (1 + parts_);
    handed_.reset();
    if (!gathers && groups == 2 && held >= 128) handed_ = {40, 232};
    if (!gathers && groups == 3 && held == 96) handed_ = {56, 152};
    free_ = (handed_ ? handed_->workers : share) - held - kOthers;
    if (free_ >= 0 || parts_ < 2) break;
  }
  const int chunk = kernel.chunk(), half = chunk / 2;  // registers for the sums of a chunk
  columns_ = chunk == kernel.columns || free_ >= half + kLoads || half % 16 ? chunk : half;
}

bool GroupRegisters::have_results(int cost) const {
  constexpr int kFew = 12;
  return columns_ == kernel_.chunk() || cost <= kFew;
}

bool results_in_registers(const loop::Program& program, std::span<const loop::Stmt* const> statements,
                          const std::vector<loop::Dim>& rows) {
  int stores = 0;
  for (const loop::Stmt* stmt : statements) {
    if (const auto* store = std::get_if<loop::Store>(&stmt->node)) {
      stores += byte_size(program[store->access.buffer].dtype) > 2 ? 2 : 1;
      continue;
    }
    bool by_row = false;
    loop::for_each_expr(*stmt, [&](sym::Expr e) { by_row = by_row || loop::depends_on_any(e, rows); });
    if (by_row) return false;
  }
  return stores == 1;
}

int cost_of(std::span<const loop::Stmt* const> statements) {
  int cost = 0;
  for (const loop::Stmt* stmt : statements)
    if (const auto* let = std::get_if<loop::Let>(&stmt->node)) cost += loop::info(let->op).cost;
  return cost;
}

}  // namespace stridec::kernels

#include "compiler/kernels/norm_prologue.h"

#include <algorithm>
#include <set>
#include <span>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Block;
using loop::Stmt;
using loop::ValueId;

bool is_scalar(const Stmt& stmt) {
  return std::holds_alternative<loop::Let>(stmt.node) || std::holds_alternative<loop::Constant>(stmt.node) ||
         std::holds_alternative<loop::IndexValue>(stmt.node) || std::holds_alternative<loop::Load>(stmt.node);
}

bool is_statistic(const Stmt& stmt) {
  const auto* reduce = std::get_if<loop::Reduce>(&stmt.node);
  return reduce && reduce->dims.size() == 1 && reduce->results.size() == 1 &&
         std::all_of(reduce->body.begin(), reduce->body.end(), is_scalar);
}

// The row: the only buffer stored by the loop, each element once, that is loaded after it.
std::optional<loop::BufferId> row_of(const loop::For& loop, const Block& behind) {
  std::set<loop::BufferId> stored;
  for (const Stmt& stmt : loop.body) {
    if (is_scalar(stmt)) continue;
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (!store || store->update || !store->access.mask.is_const(1) || store->access.index.empty() ||
        !(store->access.index.back() == loop.dims[0].var) || !stored.insert(store->access.buffer).second)
      return std::nullopt;
  }
  std::optional<loop::BufferId> row;
  bool one = std::none_of(behind.begin(), behind.end(), [&](const Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    return access && stored.contains(access->buffer);
  });
  loop::for_each_stmt(behind, [&](const Stmt& stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || !stored.contains(load->access.buffer)) return;
    one = one && (!row || *row == load->access.buffer);
    row = load->access.buffer;
  });
  return one ? row : std::nullopt;
}

}  // namespace

const loop::For* prologue_loop(const loop::Nest& nest) {
  if (nest.dims.empty() || nest.body.empty()) return nullptr;
  const auto* loop = std::get_if<loop::For>(&nest.body.back().node);
  if (!loop || loop->dims.size() != 1) return nullptr;
  const auto front = std::span(nest.body).first(nest.body.size() - 1);
  const bool plain = std::all_of(front.begin(), front.end(),
                                 [](const Stmt& stmt) { return is_scalar(stmt) || is_statistic(stmt); });
  return plain && std::any_of(front.begin(), front.end(), is_statistic) ? loop : nullptr;
}

std::optional<NormPrologue> match_row_prologue(const loop::Nest& nest) {
  const auto last = std::find_if(nest.body.rbegin(), nest.body.rend(), [](const Stmt& stmt) {
    return std::holds_alternative<loop::For>(stmt.node);
  });
  if (last == nest.body.rend() || std::get<loop::For>(last->node).dims.size() != 1) return std::nullopt;
  const auto behind = last.base();  // the statement after the loop
  const Block before(nest.body.begin(), behind - 1), after(behind, nest.body.end());
  const auto row = row_of(std::get<loop::For>(last->node), after);
  if (!row || !std::all_of(before.begin(), before.end(),
                           [](const Stmt& stmt) { return is_scalar(stmt) || is_statistic(stmt); }))
    return std::nullopt;
  NormPrologue out{.rows = nest, .product = nest, .row = *row};
  out.rows.body = before;
  out.rows.body.push_back(*last);
  std::erase_if(out.rows.dims, [&](const loop::Dim& dim) {
    bool depends = false;
    loop::for_each_stmt(out.rows.body, [&](const Stmt& stmt) {
      loop::for_each_expr(stmt, [&](sym::Expr e) { depends = depends || sym::depends_on(e, dim.var); });
    });
    return !depends;
  });
  if (out.rows.dims.size() == nest.dims.size()) return std::nullopt;
  // Statements that both use and that do not depend on a statistic are computed by both.
  out.product.body.clear();
  for (const Stmt& stmt : before)
    if (!loop::body_of(stmt)) out.product.body.push_back(stmt);
  out.product.body.insert(out.product.body.end(), after.begin(), after.end());
  loop::eliminate_dead(out.product);
  std::set<ValueId> statistics;
  for (const Stmt& stmt : before)
    if (loop::body_of(stmt)) loop::for_each_result(stmt, [&](ValueId id) { statistics.insert(id); });
  bool apart = true;
  loop::for_each_stmt(out.product.body, [&](const Stmt& stmt) {
    loop::for_each_use(stmt, [&](ValueId id) { apart = apart && !statistics.contains(id); });
  });
  return apart ? std::optional(std::move(out)) : std::nullopt;
}

loop::Nest without_prologue(const loop::Nest& nest) {
  auto prologue = match_row_prologue(nest);
  return prologue ? std::move(prologue->product) : nest;
}

bool holds_columns(const MatrixKernel& kernel) {
  return kernel.is_wgmma() && kernel.element_bytes == 2 && kernel.columns == 16 && !kernel.turns &&
         kernel.blocks_sm == 2;
}

int prologue_rows(const MatrixKernel& kernel, int64_t depth) {
  // Deeper rows gain in chains of norms and GEMMs (1.05 to 1.11 for 2048), but a decoder step of that depth
  // was measured to become slower (0.98 of its speed for 4 sequences).
  constexpr int64_t kDeepest = 1024;
  constexpr int kMost = 6;
  int rows = depth > kDeepest ? 0 : kernel.columns;
  while (rows > 0 && rows * depth > int64_t{kMost} * kernel.threads() * kPrologueVector) rows /= 2;
  return rows;
}

int prologue_vectors(const MatrixKernel& kernel, int64_t depth) {
  const int64_t all = int64_t{kernel.threads()} * kPrologueVector;
  return static_cast<int>((prologue_rows(kernel, depth) * depth + all - 1) / all);
}

std::optional<MatrixKernel> holding_columns(const MatrixKernel& kernel, int64_t depth, int64_t split,
                                            const GpuTarget& target) {
  constexpr int kLeast = 4;
  constexpr int64_t kOthers = 1 << 10;  // for barriers and the driver
  MatrixKernel out = kernel;
  const int64_t steps = (depth + kernel.depth - 1) / kernel.depth;
  out.held_steps = static_cast<int>((steps + split - 1) / split);
  const auto fits = [&] {
    const int64_t bytes = shared_bytes(out, split) + kOthers;
    return bytes <= target.shared_bytes && bytes * out.blocks_sm <= target.shared_bytes_sm;
  };
  while (out.stages > kLeast && !fits()) --out.stages;
  if (!fits()) return std::nullopt;
  return out;
}

}  // namespace stridec::kernels

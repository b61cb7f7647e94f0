#include "compiler/schedule/lay_rows.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/effects.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;

bool is_dim(const std::vector<loop::Dim>& dims, sym::Expr var) {
  return std::any_of(dims.begin(), dims.end(), [&](const loop::Dim& dim) { return dim.var == var; });
}

// The buffer's dims, outermost first: those of the product's points as they are, then those of the depth.
std::vector<size_t> rows_first(const loop::Access& access, const loop::Reduce& reduce) {
  std::vector<size_t> order;
  for (size_t c = 0; c < access.index.size(); ++c)
    if (!is_dim(reduce.dims, access.index[c])) order.push_back(c);
  for (const loop::Dim& dim : reduce.dims) {
    const auto at = std::find(access.index.begin(), access.index.end(), dim.var);
    if (at == access.index.end()) return {};
    order.push_back(static_cast<size_t>(at - access.index.begin()));
  }
  return order;
}

void lay(Program& program, const Nest& nest, const std::vector<int>& readers,
         const std::set<BufferId>& fixed) {
  const auto contraction = loop::classify_contraction(nest);
  if (!contraction || contraction->reduce->dims.size() < 2) return;
  for (const auto* operand : {&contraction->a, &contraction->b}) {
    if (!operand->plain) continue;
    const loop::Access& access = operand->plain->access;
    loop::Buffer& buffer = program[access.buffer];
    if (buffer.storage != loop::Storage::kArena || readers[access.buffer.value] != 1 ||
        fixed.contains(access.buffer) || buffer.strides != loop::row_major(buffer.shape))
      continue;
    // Each component is a dim of its own: one of the product's points, or of its depth.
    std::set<sym::Expr, sym::ExprLess> seen;
    const bool plain = std::all_of(access.index.begin(), access.index.end(), [&](sym::Expr at) {
      return (is_dim(nest.dims, at) || is_dim(contraction->reduce->dims, at)) && seen.insert(at).second;
    });
    const std::vector<size_t> order =
        plain ? rows_first(access, *contraction->reduce) : std::vector<size_t>{};
    if (order.empty() || order.back() + 1 != access.index.size()) continue;
    sym::Expr stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      buffer.strides[order[i]] = stride;
      stride = stride * buffer.shape[order[i]];
    }
  }
}

}  // namespace

void lay_rows(Program& program) {
  std::vector<int> readers(program.buffers.size());
  std::set<BufferId> fixed;  // steps other than launches expect buffers row-major
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const bool launch = std::holds_alternative<loop::Launch>(step.node);
    const Effects effects = effects_of(program, step);
    for (BufferId id : effects.reads) {
      ++readers[id.value];
      if (!launch) fixed.insert(id);
    }
    for (BufferId id : effects.writes)
      if (!launch) fixed.insert(id);
  });
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node))
      lay(program, program[launch->nest], readers, fixed);
  });
}

}  // namespace stridec::schedule

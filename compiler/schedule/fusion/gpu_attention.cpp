#include "compiler/schedule/fusion/gpu_attention.h"

#include <map>
#include <optional>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/flash.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

// Makes `var` the contiguous dim of the scratch that a factor of a chain is copied from.
void lay_along(loop::Program& program, const kernels::Factor& factor, Expr var) {
  if (factor.slice.empty()) return;
  const auto* load = std::get_if<loop::Load>(&factor.slice[0]->node);
  if (!load || program[load->access.buffer].storage != loop::Storage::kArena) return;
  loop::Buffer& buffer = program[load->access.buffer];
  if (buffer.strides != loop::row_major(buffer.shape)) return;  // another pass has chosen a layout
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

void group_query_heads(loop::Program& program) {
  const auto split = [&](loop::Nest& nest, size_t d, int64_t group) {
    const loop::Dim dim = nest.dims[d];
    loop::Cloner names(nest);
    const Expr outer = names.fresh_index(dim.var), inner = names.fresh_index(dim.var);
    loop::substitute(nest.body, {{dim.var, outer * group + inner}});
    nest.dims[d] = {outer, sym::floordiv(dim.extent, group)};
    nest.dims.insert(nest.dims.begin() + static_cast<std::ptrdiff_t>(d) + 1, {inner, group});
    loop::simplify(program, nest);
  };
  // Buffers that hold results of grouped heads: which index is the head, and the group size. The nests that
  // read them are split likewise.
  std::map<loop::BufferId, std::pair<size_t, int64_t>> grouped;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    loop::Nest& nest = program[launch->nest];
    const auto product = loop::classify_contraction(nest);
    std::optional<std::pair<size_t, int64_t>> found;
    for (size_t d = 0; d < nest.dims.size() && !found; ++d) {
      const loop::Dim& dim = nest.dims[d];
      const auto extent = sym::as_const(dim.extent);
      if (!extent) continue;
      if (product && product->m.empty() != product->n.empty())
        for (const loop::Operand* side : {&product->a, &product->b})
          for (const loop::Load* load : side->loads)
            for (Expr index : load->access.index)
              if (index.op() == sym::Op::kFloorDiv && index.arg(0) == dim.var)
                if (const auto group = sym::as_const(index.arg(1));
                    group && *group > 1 && *extent % *group == 0)
                  found = {d, *group};
      if (!product)
        loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
          const auto* load = std::get_if<loop::Load>(&stmt.node);
          const auto from = load ? grouped.find(load->access.buffer) : grouped.end();
          if (from == grouped.end() || load->access.index[from->second.first] != dim.var) return;
          found = {d, from->second.second};
        });
    }
    if (!found) return;
    const Expr head = nest.dims[found->first].var;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (!store || program[store->access.buffer].storage != loop::Storage::kArena) return;
      for (size_t i = 0; i < store->access.index.size(); ++i)
        if (store->access.index[i] == head) grouped[store->access.buffer] = {i, found->second};
    });
    split(nest, found->first, found->second);
  });
}

void chain_gpu(loop::Program& program, const GpuTarget& target, std::vector<Decision>* decisions) {
  ChainRule rule{.fits = {}, .absorbs = false, .single = true};
  rule.fits = [&](loop::Program& trial, const loop::Nest& nest, std::string* reason) {
    if (const auto chain = kernels::match_chain(nest, nullptr, true))
      for (const kernels::Chain::Part& part : chain->parts) {
        if (!part.link || part.link->columns.size() != 1) continue;
        const bool first = &part == &chain->parts.front();
        lay_along(trial, part.link->column_factor(),
                  first ? part.link->contraction.reduce->dims[0].var : part.link->columns[0].var);
      }
    if (!choose_flash(trial, nest, target, reason)) return false;
    const bool worth = pays(*kernels::match_flash(trial, nest), loop::facts_of(trial, nest), target);
    if (!worth && reason) *reason = "tensor cores would take longer than the separate kernels";
    return worth;
  };
  chain(program, rule, decisions);
}

}  // namespace stridec::schedule

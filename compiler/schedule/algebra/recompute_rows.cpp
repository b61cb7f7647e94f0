#include "compiler/schedule/algebra/recompute_rows.h"

#include <algorithm>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::For;
using loop::Load;
using loop::Nest;
using loop::Stmt;
using loop::Store;

// The only store to the buffer, and the loop at the top of the body whose iterations execute it.
struct Maker {
  const For* loop = nullptr;
  const Store* store = nullptr;
};

Maker maker_of(const Nest& nest, BufferId id) {
  Maker maker;
  int stores = 0;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* store = std::get_if<Store>(&stmt.node);
    stores += store && store->access.buffer == id;
  });
  for (const Stmt& stmt : nest.body) {
    const auto* loop = std::get_if<For>(&stmt.node);
    if (!loop || stores != 1) continue;
    for (const Stmt& inner : loop->body)
      if (const auto* store = std::get_if<Store>(&inner.node); store && store->access.buffer == id)
        maker = {loop, store};
  }
  return maker;
}

// Whether each iteration stores a separate element, computed from memory that does not change while the nest
// runs.
bool can_recompute(const Nest& nest, const Maker& maker) {
  if (!maker.loop || maker.store->update || !maker.store->access.mask.is_const(1)) return false;
  std::set<sym::Expr, sym::ExprLess> vars;
  for (const sym::Expr& index : maker.store->access.index) {
    if (!loop::is_var_of(index, maker.loop->dims) || !vars.insert(index).second) return false;
  }
  if (vars.size() != maker.loop->dims.size()) return false;
  const loop::Effects effects = loop::effects_of(nest);
  return std::all_of(maker.loop->body.begin(), maker.loop->body.end(), [&](const Stmt& stmt) {
    if (const auto* load = std::get_if<Load>(&stmt.node))
      return !std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer);
    return !loop::body_of(stmt) && !std::holds_alternative<loop::Bind>(stmt.node);
  });
}

// The block with the computation of an element inserted before each load of one.
using Replacements = std::vector<std::pair<loop::ValueId, loop::ValueId>>;
Block recomputed(Nest& nest, const Block& block, BufferId id, const Maker& maker, Replacements& replaced) {
  Block out;
  for (const Stmt& stmt : block) {
    const auto* load = std::get_if<Load>(&stmt.node);
    if (!load || load->access.buffer != id) {
      out.push_back(stmt);
      if (Block* inner = loop::body_of(out.back())) *inner = recomputed(nest, *inner, id, maker, replaced);
      continue;
    }
    loop::Cloner copy(nest);
    for (size_t v = 0; v < nest.values.size(); ++v) {
      const loop::ValueId value(static_cast<int32_t>(v));
      copy.map(value, value);
    }
    for (size_t d = 0; d < load->access.index.size(); ++d)
      copy.map(maker.store->access.index[d], load->access.index[d]);
    for (const Stmt& made : maker.loop->body)
      if (!std::holds_alternative<Store>(made.node)) out.push_back(copy.clone(nest, made));
    replaced.emplace_back(load->result, copy.value(maker.store->value));
  }
  return out;
}

}  // namespace

loop::Nest with_rows_recomputed(const loop::Program& program, loop::Nest nest,
                                const std::function<bool(BufferId)>& wanted) {
  for (const BufferId id : loop::buffers_of(nest)) {
    if (program[id].storage != loop::Storage::kLocal || !wanted(id)) continue;
    const Nest before = nest;
    const Maker maker = maker_of(before, id);
    if (!can_recompute(before, maker)) continue;
    bool masked = false;
    loop::for_each_stmt(before.body, [&](const Stmt& stmt) {
      const auto* load = std::get_if<Load>(&stmt.node);
      masked = masked || (load && load->access.buffer == id && !load->access.mask.is_const(1));
    });
    if (masked) continue;
    Replacements replaced;
    nest.body = recomputed(nest, before.body, id, maker, replaced);
    for (const auto& [from, to] : replaced) loop::replace_uses(nest.body, from, to);
    for (Stmt& stmt : nest.body)
      if (auto* loop = std::get_if<For>(&stmt.node))
        std::erase_if(loop->body, [&](const Stmt& inner) {
          const auto* store = std::get_if<Store>(&inner.node);
          return store && store->access.buffer == id;
        });
    loop::clean(program, nest);
  }
  return nest;
}

}  // namespace stridec::schedule

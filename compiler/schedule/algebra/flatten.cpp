#include "compiler/schedule/algebra/flatten.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/nest_traits.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Store;
using sym::Expr;

// Returns e if the pair is [e // extent, mod(e, extent)].
std::optional<Expr> whole_of(Expr outer, Expr inner, Expr extent) {
  if (inner.op() != sym::Op::kMod || inner.arg(1) != extent) return std::nullopt;
  const bool same =
      outer.op() == sym::Op::kFloorDiv && outer.arg(0) == inner.arg(0) && outer.arg(1) == extent;
  return same ? std::optional(inner.arg(0)) : std::nullopt;
}

std::optional<size_t> place_of(const Nest& nest, Expr var) {
  for (size_t d = 0; d < nest.dims.size(); ++d)
    if (nest.dims[d].var == var) return d;
  return std::nullopt;
}

const Store* only_store(const Nest& nest) {
  const Store* found = nullptr;
  int count = 0;
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt.node)) found = store, ++count;
  });
  return count == 1 && !found->update && found->access.mask.is_const(1) ? found : nullptr;
}

class Flattener {
 public:
  explicit Flattener(Program& program)
      : program_(program), writers_(program.buffers.size()), fixed_(fixed_buffers(program)) {
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      for (BufferId id : effects_of(program, step).writes) ++writers_[id.value];
    });
    for (Nest& nest : program.nests)
      loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
        if (const auto* load = std::get_if<loop::Load>(&stmt.node))
          readers_[load->access.buffer].push_back(&nest);
      });
  }

  // Merges two dims of the nest, and the dims of its result that they index.
  bool flatten(Nest& nest) {
    const Store* store = only_store(nest);
    if (!store || !is_pointwise(nest)) return false;
    const BufferId id = store->access.buffer;
    const loop::Buffer& buffer = program_[id];
    if (buffer.storage != loop::Storage::kArena || writers_[id.value] != 1 || fixed_.contains(id) ||
        !readers_.contains(id) || buffer.strides != loop::row_major(buffer.shape))
      return false;
    for (size_t c = 0; c + 2 < buffer.shape.size(); ++c) {
      const auto outer = place_of(nest, store->access.index[c]),
                 inner = place_of(nest, store->access.index[c + 1]);
      if (outer && inner && nest.dims[*inner].extent == buffer.shape[c + 1] && put_together(id, c) &&
          was_whole(nest, *outer, *inner)) {
        merge(nest, *outer, *inner, id, c);
        return true;
      }
    }
    return false;
  }

 private:
  // Whether all readers combine the two dims into one index.
  bool put_together(BufferId id, size_t c) const {
    bool all = true;
    for_each_load(id, [&](const Access& access) {
      all = all && whole_of(access.index[c], access.index[c + 1], program_[id].shape[c + 1]);
    });
    return all;
  }

  // Whether the nest reads something with the two dims combined into one index.
  static bool was_whole(const Nest& nest, size_t outer, size_t inner) {
    const Expr whole = nest.dims[outer].var * nest.dims[inner].extent + nest.dims[inner].var;
    bool found = false;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      if (const auto* load = std::get_if<loop::Load>(&stmt.node))
        found = found || std::find(load->access.index.begin(), load->access.index.end(), whole) !=
                             load->access.index.end();
    });
    return found;
  }

  void merge(Nest& nest, size_t outer, size_t inner, BufferId id, size_t c) {
    const loop::Dim a = nest.dims[outer], b = nest.dims[inner];
    loop::Cloner names(nest);
    const Expr whole = names.fresh_index(a.var);
    loop::substitute(nest.body,
                     {{a.var, sym::floordiv(whole, b.extent)}, {b.var, sym::mod(whole, b.extent)}});
    nest.dims[outer] = {whole, a.extent * b.extent};
    nest.dims.erase(nest.dims.begin() + static_cast<std::ptrdiff_t>(inner));
    loop::Buffer& buffer = program_[id];
    const Expr extent = buffer.shape[c + 1];
    const auto join = [&](std::vector<Expr>& list, Expr as) {
      list[c] = as;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(c) + 1);
    };
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      if (auto* store = std::get_if<Store>(&stmt.node)) join(store->access.index, whole);
    });
    for_each_load(id, [&](Access& access) {
      join(access.index, *whole_of(access.index[c], access.index[c + 1], extent));
    });
    join(buffer.shape, buffer.shape[c] * extent);
    buffer.strides = loop::row_major(buffer.shape);
    loop::clean(program_, nest);
  }

  void for_each_load(BufferId id, const auto& visit) const {
    std::set<Nest*> seen;
    for (Nest* nest : readers_.at(id)) {
      if (!seen.insert(nest).second) continue;
      loop::for_each_stmt(nest->body, [&](loop::Stmt& stmt) {
        if (auto* load = std::get_if<loop::Load>(&stmt.node))
          if (load->access.buffer == id) visit(load->access);
      });
    }
  }

  Program& program_;
  std::vector<int> writers_;
  std::set<BufferId> fixed_;
  std::map<BufferId, std::vector<Nest*>> readers_;
};

}  // namespace

void flatten(Program& program) {
  Flattener flattener(program);
  for (bool changed = true; changed;) {
    changed = false;
    for (Nest& nest : program.nests) changed = flattener.flatten(nest) || changed;
  }
}

}  // namespace stridec::schedule

// Replaces what a nest stores and loads again: by a scalar if the indices are equal, otherwise by a local
// row.
#include <algorithm>
#include <map>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::Buffer;
using loop::BufferId;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::Storage;
using loop::Store;
using loop::ValueId;

using Replacements = std::vector<std::pair<ValueId, ValueId>>;

// Stores visible at this point of the body: the last one to each buffer in this block or an enclosing one.
struct Known {
  std::vector<std::pair<Access, ValueId>> stores;
};

void forget(Known& known, BufferId buffer) {
  std::erase_if(known.stores, [&](const auto& entry) { return entry.first.buffer == buffer; });
}

void forget_written(Known& known, const Block& block) {
  loop::for_each_stmt(block, [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt.node)) forget(known, store->access.buffer);
  });
}

void forward(Block& block, Known known, Replacements& replaced) {
  for (auto& stmt : block) {
    if (auto* load = std::get_if<Load>(&stmt.node)) {
      if (!load->access.mask.is_const(1)) continue;
      for (const auto& [access, value] : known.stores)
        if (access.buffer == load->access.buffer && access.index == load->access.index)
          replaced.emplace_back(load->result, value);
    } else if (auto* store = std::get_if<Store>(&stmt.node)) {
      forget(known, store->access.buffer);
      if (!store->update && store->access.mask.is_const(1))
        known.stores.emplace_back(store->access, store->value);
    } else {
      Block* inner = loop::body_of(stmt);
      if (!inner) continue;
      forget_written(known, *inner);
      forward(*inner, known, replaced);
    }
  }
}

struct Accesses {
  std::vector<Access*> all;
  int loads = 0, stores = 0;
};
std::map<BufferId, Accesses> accesses_of(Nest& nest) {
  std::map<BufferId, Accesses> found;
  loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
    if (auto* load = std::get_if<Load>(&stmt.node)) {
      auto& entry = found[load->access.buffer];
      entry.all.push_back(&load->access);
      ++entry.loads;
    }
    if (auto* store = std::get_if<Store>(&stmt.node)) {
      auto& entry = found[store->access.buffer];
      entry.all.push_back(&store->access);
      ++entry.stores;
    }
  });
  return found;
}

void drop_stores(Block& block, BufferId buffer) {
  std::erase_if(block, [&](const Stmt& stmt) {
    const auto* store = std::get_if<Store>(&stmt.node);
    return store && store->access.buffer == buffer;
  });
  for (auto& stmt : block)
    if (Block* inner = loop::body_of(stmt)) drop_stores(*inner, buffer);
}

// Replaces the buffer by one point's part of it: drops the dims that the nest's point determines, with the
// same index in every access.
void make_local(Program& program, Nest& nest, BufferId id, const std::vector<Access*>& accesses) {
  const Buffer& shared = program[id];
  Buffer local{.name = shared.name, .dtype = shared.dtype, .storage = Storage::kLocal};
  std::vector<size_t> kept;
  for (size_t i = 0; i < shared.shape.size(); ++i) {
    const sym::Expr first = accesses[0]->index[i];
    const std::vector<sym::Expr> vars = sym::free_vars(first);
    const bool own =
        std::all_of(vars.begin(), vars.end(), [&](sym::Expr var) { return loop::is_var_of(var, nest.dims); });
    if (own &&
        std::all_of(accesses.begin(), accesses.end(), [&](const Access* a) { return a->index[i] == first; }))
      continue;
    kept.push_back(i);
    local.shape.push_back(shared.shape[i]);
  }
  const BufferId local_id = loop::add_buffer(program, std::move(local));
  for (Access* access : accesses) {
    std::vector<sym::Expr> index;
    for (size_t i : kept) index.push_back(access->index[i]);
    access->index = std::move(index);
    access->buffer = local_id;
  }
}

}  // namespace

void localise(Program& program, Nest& nest, const UserCounts& counts, std::vector<FusionRule>* refused) {
  // Reading steps to expect: 1 if this nest loaded the buffer before anything was forwarded.
  std::map<BufferId, int> own_reads;
  for (const auto& [id, accesses] : accesses_of(nest)) own_reads[id] = accesses.loads > 0 ? 1 : 0;
  Replacements replaced;
  forward(nest.body, {}, replaced);
  for (const auto& [from, to] : replaced) loop::replace_uses(nest.body, from, to);
  loop::eliminate_dead(nest);

  const auto kept = [&](BufferId id) -> std::optional<FusionRule> {
    if (program[id].storage != Storage::kArena) return FusionRule::kLocaliseArena;
    if (counts.writers(id) != 1) return FusionRule::kLocaliseWriters;
    if (counts.readers(id) > own_reads[id]) return FusionRule::kLocaliseReaders;
    return std::nullopt;
  };
  const auto is_own = [&](BufferId id, const Accesses& accesses) { return accesses.stores > 0 && !kept(id); };
  for (const auto& [id, accesses] : accesses_of(nest))
    if (const auto why = kept(id); refused && why && accesses.stores > 0 && own_reads[id] > 0)
      refused->push_back(*why);
  // Dropping stores moves the statements that the accesses point into, so it comes first, over its own list.
  for (const auto& [id, accesses] : accesses_of(nest))
    if (is_own(id, accesses) && accesses.loads == 0) drop_stores(nest.body, id);
  for (const auto& [id, accesses] : accesses_of(nest))
    if (is_own(id, accesses)) make_local(program, nest, id, accesses.all);
  loop::eliminate_dead(nest);
}

void share_rows(const Program& program, Nest& nest) {
  struct Life {
    size_t first = 0, last = 0;  // statements of the body
    const Store* store = nullptr;
    const loop::For* stored_in = nullptr;
    int stores = 0;
  };
  auto touches = [](const Stmt& stmt, BufferId id) {
    bool found = false;
    auto visit = [&](const Stmt& s) {
      const Access* access = loop::access_of(s);
      found = found || (access && access->buffer == id);
    };
    visit(stmt);
    if (const loop::Block* body = loop::body_of(stmt)) loop::for_each_stmt(*body, visit);
    return found;
  };
  auto life_of = [&](BufferId id) {
    Life life;
    bool any = false;
    for (size_t i = 0; i < nest.body.size(); ++i) {
      if (!touches(nest.body[i], id)) continue;
      if (!any) life.first = i;
      any = true;
      life.last = i;
      const auto* loop = std::get_if<loop::For>(&nest.body[i].node);
      auto visit = [&](const Stmt& s) {
        const auto* store = std::get_if<Store>(&s.node);
        if (store && store->access.buffer == id) life.store = store, life.stored_in = loop, ++life.stores;
      };
      visit(nest.body[i]);
      if (const loop::Block* body = loop::body_of(nest.body[i])) loop::for_each_stmt(*body, visit);
    }
    return life;
  };
  // Whether the loop stores `to` directly in its body and all its loads of `from` come before, at the store's
  // index.
  auto elementwise = [&](const loop::For& loop, BufferId from, const Access& to) {
    bool ok = to.mask.is_const(1), direct = false;
    for (const Stmt& stmt : loop.body) {
      if (const auto* store = std::get_if<Store>(&stmt.node)) direct = direct || &store->access == &to;
      if (const auto* load = std::get_if<loop::Load>(&stmt.node); load && load->access.buffer == from)
        ok = ok && load->access.index == to.index && !direct;
      if (const loop::Block* body = loop::body_of(stmt))
        loop::for_each_stmt(*body, [&](const Stmt& s) {
          const Access* access = loop::access_of(s);
          ok = ok && !(access && access->buffer == from);
        });
    }
    return ok && direct;
  };
  for (bool changed = true; changed;) {
    changed = false;
    const Effects effects = effects_of(nest);
    for (BufferId to : effects.writes) {
      if (program[to].storage != Storage::kLocal) continue;
      const Life born = life_of(to);
      if (born.stores != 1 || !born.stored_in) continue;
      for (BufferId from : effects.writes) {
        if (from == to || program[from].storage != Storage::kLocal) continue;
        if (program[from].dtype != program[to].dtype || program[from].shape != program[to].shape) continue;
        const Life died = life_of(from);
        if (died.last > born.first || !elementwise(*born.stored_in, from, born.store->access)) continue;
        loop::for_each_stmt(nest.body, [&](Stmt& stmt) {
          if (Access* access = loop::access_of(stmt); access && access->buffer == to) access->buffer = from;
        });
        changed = true;
        break;
      }
      if (changed) break;
    }
  }
}

}  // namespace stridec::schedule

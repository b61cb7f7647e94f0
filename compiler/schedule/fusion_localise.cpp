// What a nest stores and loads again: as a scalar where the indices are the same, else as a row of its own.
#include <algorithm>
#include <map>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion_rules.h"

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
using loop::Store;
using loop::ValueId;

using Replacements = std::vector<std::pair<ValueId, ValueId>>;

// Stores visible at this point of the body, by buffer: the last one in this block or an enclosing one.
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

// The buffer without the components that are the nest's own dims in every access: one point's share of it.
void make_local(Program& program, Nest& nest, BufferId id, const std::vector<Access*>& accesses) {
  const Buffer& shared = program[id];
  Buffer local{.name = shared.name, .dtype = shared.dtype, .storage = loop::Storage::kLocal};
  std::vector<size_t> kept;
  for (size_t i = 0; i < shared.shape.size(); ++i) {
    const sym::Expr first = accesses[0]->index[i];
    const bool own = std::any_of(nest.dims.begin(), nest.dims.end(),
                                 [&](const loop::Dim& dim) { return dim.var == first; });
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

void localise(Program& program, Nest& nest, const Flow& flow) {
  std::map<BufferId, int>
      own_reads;  // steps: this one, where it loaded the buffer before anything was forwarded
  for (const auto& [id, accesses] : accesses_of(nest)) own_reads[id] = accesses.loads > 0 ? 1 : 0;
  Replacements replaced;
  forward(nest.body, {}, replaced);
  for (const auto& [from, to] : replaced) loop::replace_uses(nest.body, from, to);
  loop::eliminate_dead(nest);

  const auto is_own = [&](BufferId id, const Accesses& accesses) {
    return program[id].storage == loop::Storage::kArena && accesses.stores > 0 &&
           flow.total_writers[id.value] == 1 && flow.total_readers[id.value] <= own_reads[id];
  };
  // Dropping stores moves the statements that accesses point into: it comes first, over a list of its own.
  for (const auto& [id, accesses] : accesses_of(nest))
    if (is_own(id, accesses) && accesses.loads == 0) drop_stores(nest.body, id);
  for (const auto& [id, accesses] : accesses_of(nest))
    if (is_own(id, accesses)) make_local(program, nest, id, accesses.all);
  loop::eliminate_dead(nest);
}

}  // namespace stridec::schedule

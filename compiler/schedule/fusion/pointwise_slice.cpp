#include "compiler/schedule/fusion/pointwise_slice.h"

#include <functional>
#include <set>
#include <vector>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::Store;
using loop::ValueId;

// The store to a buffer, with the blocks around it, outermost first.
struct Site {
  const Store* store = nullptr;
  std::vector<const Block*> blocks;
  std::vector<loop::Dim> dims;
};

// The only store to the buffer, if nothing but parallel loops is around it.
std::optional<Site> site_of(const Nest& nest, BufferId id) {
  Site found;
  int stores = 0;
  bool parallel = true;
  std::vector<const Block*> blocks;
  std::vector<loop::Dim> dims = nest.dims;
  const std::function<void(const Block&, bool)> visit = [&](const Block& block, bool loops) {
    blocks.push_back(&block);
    for (const Stmt& stmt : block) {
      if (const auto* store = std::get_if<Store>(&stmt.node); store && store->access.buffer == id) {
        ++stores;
        parallel = parallel && loops && !store->update && store->access.mask.is_const(1);
        found = {store, blocks, dims};
      }
      const Block* body = loop::body_of(stmt);
      if (!body) continue;
      const size_t before = dims.size();
      for (const loop::Dim& dim : loop::dims_of(stmt)) dims.push_back(dim);
      visit(*body, loops && std::holds_alternative<loop::For>(stmt.node));
      dims.resize(before);
    }
    blocks.pop_back();
  };
  visit(nest.body, true);
  return stores == 1 && parallel ? std::optional(found) : std::nullopt;
}

// Builds the pointwise nest that computes the stored elements from memory.
class Slicer {
 public:
  Slicer(const Program& program, const Nest& nest, Site site)
      : program_(program), nest_(nest), site_(std::move(site)), effects_(loop::effects_of(nest)) {}

  std::optional<Nest> take() {
    out_ = {.name = nest_.name, .nodes = nest_.nodes, .dims = site_.dims, .values = nest_.values};
    if (!add(site_.store->value)) return std::nullopt;
    out_.body.push_back({*site_.store});
    return std::move(out_);
  }

 private:
  bool add(ValueId id) {
    if (!added_.insert(id).second) return true;
    const Stmt* stmt = nullptr;
    for (const Block* block : site_.blocks)
      if (const Stmt* found = loop::definition(*block, id)) stmt = found;
    if (!stmt) return false;
    if (const auto* load = std::get_if<Load>(&stmt->node); load && writes(effects_, load->access.buffer))
      return false;
    if (load_stored(id)) return true;
    const bool elementwise =
        std::holds_alternative<loop::Let>(stmt->node) || std::holds_alternative<loop::Constant>(stmt->node) ||
        std::holds_alternative<loop::IndexValue>(stmt->node) || std::holds_alternative<Load>(stmt->node);
    if (!elementwise) return false;
    bool ok = true;
    loop::for_each_use(*stmt, [&](ValueId used) { ok = ok && add(used); });
    // Variables of binds are not those of the new nest.
    loop::for_each_expr(*stmt, [&](sym::Expr e) {
      for (sym::Expr var : sym::free_vars(e))
        ok = ok && (!sym::is_index(var) || loop::is_var_of(var, site_.dims));
    });
    if (ok) out_.body.push_back(*stmt);
    return ok;
  }

  // Loads the value from a buffer to which the nest stores it too: the value of a reduction, or the elements
  // from which the epilogue of a contraction computes others.
  bool load_stored(ValueId id) {
    for (const Block* block : site_.blocks)
      for (const Stmt& stmt : *block) {
        const auto* store = std::get_if<Store>(&stmt.node);
        if (!store || store->value != id || !holds(*store, id)) continue;
        out_.body.push_back({Load{id, store->access, {.dtype = program_[store->access.buffer].dtype}}});
        return true;
      }
    return false;
  }

  // Whether the buffer of the store holds the value after the nest, at an index that the new nest has.
  bool holds(const Store& store, ValueId id) const {
    const BufferId buffer = store.access.buffer;
    if (store.update || !store.access.mask.is_const(1) || buffer == site_.store->access.buffer) return false;
    if (program_[buffer].storage == loop::Storage::kLocal ||
        program_[buffer].dtype != nest_.values[id.value].dtype)
      return false;
    int stores = 0;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      const auto* other = std::get_if<Store>(&stmt.node);
      stores += other && other->access.buffer == buffer;
    });
    if (stores != 1) return false;
    for (sym::Expr at : store.access.index)
      for (sym::Expr var : sym::free_vars(at))
        if (sym::is_index(var) && !loop::is_var_of(var, site_.dims)) return false;
    return true;
  }

  const Program& program_;
  const Nest& nest_;
  const Site site_;
  const Effects effects_;
  Nest out_;
  std::set<ValueId> added_;
};

}  // namespace

std::optional<Nest> pointwise_slice(const Program& program, const Nest& nest, BufferId result) {
  const auto site = site_of(nest, result);
  if (!site || site->dims.empty()) return std::nullopt;
  return Slicer(program, nest, *site).take();
}

}  // namespace stridec::schedule

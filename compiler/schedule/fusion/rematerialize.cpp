#include "compiler/schedule/fusion/rematerialize.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Block;
using loop::BufferId;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Steps;
using loop::Stmt;
using loop::Store;
using loop::ValueId;

// A smaller buffer stays in a cache.
constexpr double kLargeBytes = 4 << 20;
// Highest cost of computing the elements again, for all uses together: less than storing one takes.
constexpr int kMostCost = 20;

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
    const bool elementwise =
        std::holds_alternative<loop::Let>(stmt->node) || std::holds_alternative<loop::Constant>(stmt->node) ||
        std::holds_alternative<loop::IndexValue>(stmt->node) || std::holds_alternative<Load>(stmt->node);
    if (!elementwise) return add_stored(id);
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

  // The value of a reduction, from the buffer to which the nest stores it.
  bool add_stored(ValueId id) {
    for (const Stmt& stmt : nest_.body) {
      const auto* store = std::get_if<Store>(&stmt.node);
      if (!store || store->value != id || store->update || !store->access.mask.is_const(1)) continue;
      const loop::Buffer& buffer = program_[store->access.buffer];
      if (store->access.buffer == site_.store->access.buffer) continue;
      if (buffer.storage == loop::Storage::kLocal || buffer.dtype != nest_.values[id.value].dtype) continue;
      for (sym::Expr at : store->access.index)
        for (sym::Expr var : sym::free_vars(at))
          if (sym::is_index(var) && !loop::is_var_of(var, site_.dims)) return false;
      out_.body.push_back({Load{id, store->access, {.dtype = buffer.dtype}}});
      return true;
    }
    return false;
  }

  const Program& program_;
  const Nest& nest_;
  const Site site_;
  const Effects effects_;
  Nest out_;
  std::set<ValueId> added_;
};

class Rematerializer {
 public:
  Rematerializer(Program& program, Steps& steps, std::vector<Decision>* decisions)
      : program_(program), steps_(steps), decisions_(decisions), flow_(program, steps) {}

  void run() {
    for (int at = 0; at < static_cast<int>(steps_.size()); ++at) {
      if (!nest_at(program_, steps_, at)) continue;
      const std::vector<BufferId> written = flow_.effects(at).writes;
      for (BufferId id : written)
        if (program_[id].storage == loop::Storage::kArena && made_once(program_, flow_, id) &&
            typical_bytes(program_, id) >= kLargeBytes)
          try_buffer(at, id);
    }
  }

 private:
  Nest& nest(int at) { return program_[std::get<Launch>(steps_[static_cast<size_t>(at)].node).nest]; }

  void try_buffer(int at, BufferId id) {
    const auto site = site_of(nest(at), id);
    if (!site || site->dims.empty()) return;
    const auto producer = Slicer(program_, nest(at), *site).take();
    if (!producer || !costs_less(*producer, id)) return;
    const auto readers = readers_of(at, id);
    if (!readers || static_cast<int>(readers->size()) * scalar_cost(producer->body) > kMostCost) return;
    std::vector<Nest> rewritten;
    for (int reader : *readers) {
      Nest& consumer = rewritten.emplace_back(nest(reader));
      if (!still_there(*producer, at, reader) || !inline_producer(program_, *producer, consumer)) return;
      join_nodes(consumer, producer->nodes);
      loop::clean(program_, consumer);
    }
    for (size_t i = 0; i < readers->size(); ++i) {
      if (decisions_)
        decisions_->push_back(decision_about(program_, nest(at), nest((*readers)[i]), true,
                                             "recomputed: that costs less than storing it"));
      replace((*readers)[i], std::move(rewritten[i]));
    }
    Nest rest = nest(at);
    localise(program_, rest, flow_.counts());
    replace(at, std::move(rest));
  }

  // Whether the elements are computed from at most one load of their size each.
  bool costs_less(const Nest& producer, BufferId id) const {
    int loads = 0;
    for (const Stmt& stmt : producer.body)
      if (const auto* load = std::get_if<Load>(&stmt.node);
          load && runs_through(load->access, producer.dims)) {
        ++loads;
        if (byte_size(program_[load->access.buffer].dtype) > byte_size(program_[id].dtype)) return false;
      }
    return loads <= 1;
  }

  // The other steps that read the buffer, if all of them load each element once.
  std::optional<std::vector<int>> readers_of(int at, BufferId id) const {
    const std::vector<int> found = flow_.readers_between(id, at, flow_.size());
    const int all = flow_.reader_count(id) - (reads(flow_.effects(at), id) ? 1 : 0);
    for (const int reader : found) {
      const Nest* consumer = nest_at(program_, steps_, reader);
      if (!consumer || is_contraction(*consumer) ||
          !loads_once(*consumer, consumer->dims, consumer->body, id))
        return std::nullopt;
    }
    return static_cast<int>(found.size()) == all && all > 0 ? std::optional(found) : std::nullopt;
  }

  // Whether one statement loads from the buffer, in loops that all move the element.
  bool loads_once(const Nest& consumer, const std::vector<loop::Dim>& dims, const Block& block,
                  BufferId id) const {
    int loads = 0;
    bool once = true;
    const std::function<void(const Block&, const std::vector<loop::Dim>&)> visit =
        [&](const Block& body, const std::vector<loop::Dim>& around) {
          for (const Stmt& stmt : body) {
            if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == id) {
              ++loads;
              once = once && runs_through(load->access, around);
            }
            const Block* inner = loop::body_of(stmt);
            if (!inner) continue;
            std::vector<loop::Dim> more = around;
            for (const loop::Dim& dim : loop::dims_of(stmt)) more.push_back(dim);
            visit(*inner, more);
          }
        };
    visit(block, dims);
    return loads == 1 && once && statement_count(consumer.body) < kMostStatements / 2;
  }

  // Whether nothing between the two steps, nor the later one, writes what the producer reads.
  bool still_there(const Nest& producer, int at, int reader) const {
    const Effects effects = loop::effects_of(producer);
    return std::ranges::all_of(
        effects.reads, [&](BufferId id) { return flow_.writers_between(id, at, reader + 1).empty(); });
  }

  void replace(int at, Nest changed) {
    nest(at) = std::move(changed);
    flow_.replace(at, effects_of(program_, steps_[static_cast<size_t>(at)]));
  }

  Program& program_;
  Steps& steps_;
  std::vector<Decision>* decisions_;
  Flow flow_;
};

}  // namespace

void rematerialize(Program& program, std::vector<Decision>* decisions) {
  loop::for_each_block(program.steps, [&](Steps& steps) { Rematerializer(program, steps, decisions).run(); });
  loop::eliminate_dead_code(program);
}

}  // namespace stridec::schedule

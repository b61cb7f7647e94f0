#include "compiler/schedule/fusion_join.h"

#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {

using loop::Access;
using loop::Block;
using loop::BufferId;
using loop::Dim;
using loop::Launch;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::Store;
using sym::Expr;

namespace {

int dim_at(const std::vector<Dim>& dims, Expr e) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].var == e) return static_cast<int>(d);
  return -1;
}

std::vector<const Access*> stores_to(const Nest& nest, BufferId buffer) {
  std::vector<const Access*> found;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt.node); store && store->access.buffer == buffer)
      found.push_back(&store->access);
  });
  return found;
}

std::vector<const Access*> loads_from(const Nest& nest, BufferId buffer) {
  std::vector<const Access*> found;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    if (const auto* load = std::get_if<Load>(&stmt.node); load && load->access.buffer == buffer)
      found.push_back(&load->access);
  });
  return found;
}

}  // namespace

Exchanges exchanges_between(const Nest& first, const Nest& second) {
  const Effects before = effects_of(first), after = effects_of(second);
  Exchanges found;
  for (BufferId id : before.writes)
    if (reads(after, id)) found.passing.push_back({stores_to(first, id), loads_from(second, id)});
  found.ordered = found.passing;
  for (BufferId id : after.writes) {
    if (reads(before, id)) found.ordered.push_back({loads_from(first, id), stores_to(second, id)});
    if (writes(before, id)) found.ordered.push_back({stores_to(first, id), stores_to(second, id)});
  }
  return found;
}

Matching match_dims(const Program& program, const Nest& producer, const Nest& consumer,
                    const std::vector<Exchange>& exchanges) {
  Matching matching;
  for (size_t p = 0; p < producer.dims.size(); ++p) {
    int partner = -1;
    bool agreed = true;
    for (const Exchange& exchange : exchanges)
      for (const Access* first : exchange.first) {
        int component = -1;
        for (size_t i = 0; i < first->index.size(); ++i)
          if (first->index[i] == producer.dims[p].var) component = static_cast<int>(i);
        for (const Access* second : exchange.second) {
          const int c = component < 0 ? -1 : dim_at(consumer.dims, second->index[component]);
          if (c < 0 || (partner >= 0 && partner != c)) agreed = false;
          if (agreed) partner = c;
        }
      }
    if (!agreed || partner < 0) continue;
    if (!program.facts.holds(sym::eq(producer.dims[p].extent, consumer.dims[partner].extent))) continue;
    matching.emplace_back(static_cast<int>(p), partner);
  }
  return matching;
}

std::vector<Dim> unmatched(const std::vector<Dim>& dims, const Matching& matching, bool of_producer) {
  std::vector<Dim> rest;
  for (size_t d = 0; d < dims.size(); ++d)
    if (std::none_of(matching.begin(), matching.end(), [&](auto pair) {
          return (of_producer ? pair.first : pair.second) == static_cast<int>(d);
        }))
      rest.push_back(dims[d]);
  return rest;
}

bool passes_rows(const Nest& producer, const Matching& matching, const std::vector<Exchange>& exchanges) {
  for (const Exchange& exchange : exchanges)
    for (const Access* store : exchange.first) {
      bool behind_rest = false;
      for (Expr at : store->index) {
        const int dim = dim_at(producer.dims, at);
        const bool common = dim >= 0 && std::any_of(matching.begin(), matching.end(),
                                                    [&](auto pair) { return pair.first == dim; });
        if (common && behind_rest) return false;
        behind_rest = behind_rest || (!common && sym::has_index(at));
      }
    }
  return true;
}

namespace {

// Symbols that get their values when the step runs.
std::vector<Expr> bound_by(const loop::Step& step) {
  if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node)) return {bind->symbol};
  if (const auto* loop = std::get_if<loop::While>(&step.node)) return {loop->iterations};
  return {};
}

bool uses_symbol(const Program& program, const Nest& nest, Expr symbol) {
  const auto has = [&](Expr e) { return sym::depends_on(e, symbol); };
  bool used =
      std::any_of(nest.dims.begin(), nest.dims.end(), [&](const Dim& dim) { return has(dim.extent); });
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    loop::for_each_expr(stmt, [&](Expr e) { used = used || has(e); });
    if (const Access* access = loop::access_of(stmt))
      for (Expr size : program[access->buffer].shape) used = used || has(size);
  });
  return used;
}

}  // namespace

bool may_move(const Program& program, const loop::Steps& steps, const Flow& flow, int from, int to,
              const std::vector<int>& with) {
  const Effects& moved = flow.effects[from];
  const Nest& nest = program[std::get<Launch>(steps[from].node).nest];
  for (int at = to + 1; at < from; ++at)
    for (Expr symbol : bound_by(steps[at]))
      if (uses_symbol(program, nest, symbol)) return false;
  for (int at = std::min(from, to) + 1; at < std::max(from, to); ++at) {
    if (std::find(with.begin(), with.end(), at) != with.end()) continue;
    const Effects& other = flow.effects[at];
    for (BufferId id : moved.writes)
      if (reads(other, id) || writes(other, id)) return false;
    for (BufferId id : moved.reads)
      if (writes(other, id)) return false;
  }
  return true;
}

Nest merged_nest(const Nest& producer, const Nest& consumer, const Matching& matching) {
  Nest merged = producer;
  merged.name = fused_name(producer, consumer);
  join_nodes(merged, consumer.nodes);
  const std::vector<Dim> producer_rest = unmatched(producer.dims, matching, true);
  if (!producer_rest.empty()) {
    std::erase_if(merged.dims, [&](const Dim& dim) { return dim_at(producer_rest, dim.var) >= 0; });
    Block body;
    body.push_back({loop::For{producer_rest, std::move(merged.body)}});
    merged.body = std::move(body);
  }
  loop::Cloner cloner(merged);
  for (auto [p, c] : matching) cloner.map(consumer.dims[c].var, producer.dims[p].var);
  const std::vector<Dim> consumer_rest = unmatched(consumer.dims, matching, false);
  Block source;
  if (consumer_rest.empty())
    source = consumer.body;
  else
    source.push_back({loop::For{consumer_rest, consumer.body}});
  Block body = cloner.clone(consumer, source);
  for (auto& stmt : body) merged.body.push_back(std::move(stmt));
  return merged;
}

int replace_steps(Program& program, loop::Steps& steps, Flow& flow, int kept, std::vector<int> gone,
                  Nest merged) {
  auto count = [&](const Effects& effects, int by) {
    for (BufferId id : effects.reads) flow.total_readers[id.value] += by;
    for (BufferId id : effects.writes) flow.total_writers[id.value] += by;
  };
  count(flow.effects[kept], -1);
  for (int at : gone) count(flow.effects[at], -1);
  const Effects before = effects_of(merged);
  count(before, 1);
  localise(program, merged, flow);
  loop::clean(program, merged);
  count(before, -1);
  flow.effects[kept] = effects_of(merged);
  flow.total_readers.resize(program.buffers.size(), 0);
  flow.total_writers.resize(program.buffers.size(), 0);
  count(flow.effects[kept], 1);

  program[std::get<Launch>(steps[kept].node).nest] = std::move(merged);
  std::sort(gone.rbegin(), gone.rend());
  for (int at : gone) {
    steps.erase(steps.begin() + at);
    flow.effects.erase(flow.effects.begin() + at);
    if (at < kept) --kept;
  }
  return kept;
}

}  // namespace stridec::schedule

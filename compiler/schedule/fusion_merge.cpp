// for r: m[r] = reduce k x[r,k]        for r: m = reduce k x[r,k]
// for r, k: y[r,k] = x[r,k] - m[r]  ->        for k: y[r,k] = x[r,k] - m
#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion_rules.h"

namespace stridec::schedule {
namespace {

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

// With fewer rows than this, and rows longer than that, one nest a row would leave cores idle.
constexpr int64_t kFewRows = 8;
constexpr int64_t kLongRow = 1 << 16;

// Pairs of dims (producer's, consumer's) over which every element that passes between the nests agrees.
using Matching = std::vector<std::pair<int, int>>;

// One buffer over which the order of the two nests matters: what the first does to it against what the second
// does. A point of the merged nest does the first's work before the second's, so accesses to one element must
// be of the same point.
struct Exchange {
  std::vector<const Access*> first, second;
};

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

int dim_at(const std::vector<Dim>& dims, Expr e) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].var == e) return static_cast<int>(d);
  return -1;
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

// What passes between the nests lies in memory with the common dims in front: a point's share is a row, not a
// column.
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

Expr points(const std::vector<Dim>& dims) {
  Expr product = 1;
  for (const Dim& dim : dims) product = product * dim.extent;
  return product;
}

bool has_loops(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(), [](const Stmt& stmt) {
    return std::holds_alternative<loop::Reduce>(stmt.node) || std::holds_alternative<loop::For>(stmt.node) ||
           std::holds_alternative<loop::Scan>(stmt.node);
  });
}

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

// May the nest at `from` move to just before (or, moving down, just after) all steps strictly between the
// two? Upwards it may not pass what binds a symbol that it uses.
bool may_move(const Program& program, const loop::Steps& steps, const Flow& flow, int from, int to) {
  const Effects& moved = flow.effects[from];
  const Nest& nest = program[std::get<Launch>(steps[from].node).nest];
  for (int at = to + 1; at < from; ++at)
    for (Expr symbol : bound_by(steps[at]))
      if (uses_symbol(program, nest, symbol)) return false;
  for (int at = std::min(from, to) + 1; at < std::max(from, to); ++at) {
    const Effects& other = flow.effects[at];
    for (BufferId id : moved.writes)
      if (reads(other, id) || writes(other, id)) return false;
    for (BufferId id : moved.reads)
      if (writes(other, id)) return false;
  }
  return true;
}

int refuse(std::string* reason, const char* why) {
  *reason = why;
  return -1;
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

}  // namespace

int try_merge(Program& program, loop::Steps& steps, Flow& flow, int producer_at, int consumer_at,
              std::string* reason) {
  const loop::NestId producer_id = std::get<Launch>(steps[producer_at].node).nest;
  const loop::NestId consumer_id = std::get<Launch>(steps[consumer_at].node).nest;
  const Nest& producer = program[producer_id];
  const Nest& consumer = program[consumer_id];
  if (effects_of(producer).updates || effects_of(consumer).updates) return refuse(reason, "one scatters");

  std::vector<Exchange> passing;
  for (BufferId id : flow.effects[producer_at].writes) {
    if (!reads(flow.effects[consumer_at], id)) continue;
    if (flow.total_writers[id.value] != 1)
      return refuse(reason, "what passes between them is written in several places");
    passing.push_back({stores_to(producer, id), loads_from(consumer, id)});
  }
  std::vector<Exchange> ordered = passing;
  for (BufferId id : flow.effects[consumer_at].writes) {
    if (reads(flow.effects[producer_at], id))
      ordered.push_back({loads_from(producer, id), stores_to(consumer, id)});
    if (writes(flow.effects[producer_at], id))
      ordered.push_back({stores_to(producer, id), stores_to(consumer, id)});
  }
  const Matching matching = match_dims(program, producer, consumer, ordered);
  const std::vector<Dim> producer_rest = unmatched(producer.dims, matching, true);
  const std::vector<Dim> consumer_rest = unmatched(consumer.dims, matching, false);
  if (!producer_rest.empty() && !consumer_rest.empty())
    return refuse(reason, "both have dims that the other lacks");
  if (matching.empty() && !(producer_rest.empty() && consumer_rest.empty()))
    return refuse(reason, "they share no dims");

  const bool same_domain = producer_rest.empty() && consumer_rest.empty();
  if (is_contraction(program, consumer)) return refuse(reason, "the consumer is a contraction");
  if (is_contraction(program, producer) && (!same_domain || has_loops(consumer)))
    return refuse(reason, "the producer is a contraction and the consumer no epilogue");
  if (!same_domain) {
    if (!passes_rows(producer, matching, passing))
      return refuse(reason, "what passes between them would be a column");
    std::vector<Dim> rows;
    for (auto [p, c] : matching) rows.push_back(producer.dims[p]);
    const auto row_count = program.facts.bounds(points(rows));
    const auto length = program.facts.bounds(points(producer_rest.empty() ? consumer_rest : producer_rest));
    if (row_count.hi < kFewRows && length.lo > kLongRow)
      return refuse(reason, "too few rows to keep the cores busy");
  }
  if (statement_count(producer.body) + statement_count(consumer.body) > kMostStatements)
    return refuse(reason, "the nest would grow too long");
  const bool down = may_move(program, steps, flow, producer_at, consumer_at);
  if (!down && !may_move(program, steps, flow, consumer_at, producer_at))
    return refuse(reason, "a step between them is in the way");

  Nest merged = merged_nest(producer, consumer, matching);
  const int kept = down ? consumer_at : producer_at;
  const int gone = down ? producer_at : consumer_at;
  for (int at : {producer_at, consumer_at}) {
    for (BufferId id : flow.effects[at].reads) --flow.total_readers[id.value];
    for (BufferId id : flow.effects[at].writes) --flow.total_writers[id.value];
  }
  const Effects before = effects_of(merged);
  for (BufferId id : before.reads) ++flow.total_readers[id.value];
  for (BufferId id : before.writes) ++flow.total_writers[id.value];
  localise(program, merged, flow);
  loop::clean(program, merged);
  for (BufferId id : before.reads) --flow.total_readers[id.value];
  for (BufferId id : before.writes) --flow.total_writers[id.value];
  flow.effects[kept] = effects_of(merged);
  flow.total_readers.resize(program.buffers.size(), 0);
  flow.total_writers.resize(program.buffers.size(), 0);
  for (BufferId id : flow.effects[kept].reads) ++flow.total_readers[id.value];
  for (BufferId id : flow.effects[kept].writes) ++flow.total_writers[id.value];

  program[std::get<Launch>(steps[kept].node).nest] = std::move(merged);
  steps.erase(steps.begin() + gone);
  flow.effects.erase(flow.effects.begin() + gone);
  return kept - (gone < kept ? 1 : 0);
}

}  // namespace stridec::schedule

#include "compiler/schedule/fusion/fusion_join.h"

#include <algorithm>
#include <optional>

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

// Decomposes an index into mixed-radix digits, one per dim, last digit first. The step of the last digit is
// 1; that of every other digit is the product of the extents of the digits after it. Returns nothing for any
// other index.
struct DimDigit {
  int dim;
  Expr step;
};
std::optional<std::vector<DimDigit>> dim_digits(Expr e, const std::vector<Dim>& dims,
                                                const sym::Facts& facts) {
  if (const int dim = dim_at(dims, e); dim >= 0) return std::vector<DimDigit>{{dim, 1}};
  std::vector<DimDigit> terms;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!sym::depends_on(e, dims[d].var)) continue;
    const auto linear = sym::linear_in(e, dims[d].var);
    if (!linear || sym::has_index(linear->coefficient)) return std::nullopt;
    terms.push_back({static_cast<int>(d), linear->coefficient});
    e = linear->rest;
  }
  if (terms.empty() || !sym::simplify(e, facts).is_const(0)) return std::nullopt;
  std::vector<DimDigit> digits;
  for (Expr step = 1; !terms.empty(); step = sym::simplify(step * dims[digits.back().dim].extent, facts)) {
    const auto next = std::find_if(terms.begin(), terms.end(), [&](const DimDigit& term) {
      return term.step == step || facts.holds(sym::eq(term.step, step));
    });
    if (next == terms.end()) return std::nullopt;
    digits.push_back({next->dim, step});
    terms.erase(next);
  }
  return digits;
}

// Whether the nest indexes weights by `var`. A contraction's weights are packed by its dims, so columns stay
// whole.
bool runs_through_weights(const Program& program, const Nest& nest, Expr var) {
  bool found = false;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const auto* load = std::get_if<Load>(&stmt.node);
    if (!load || program[load->access.buffer].storage != loop::Storage::kParameter) return;
    for (Expr e : load->access.index) found = found || sym::depends_on(e, var);
  });
  return found;
}

}  // namespace

std::optional<Nest> split_like(const Program& program, const Nest& producer, const Nest& consumer,
                               const std::vector<Exchange>& exchanges) {
  std::optional<Nest> split;
  for (size_t p = 0; p < producer.dims.size(); ++p) {
    const Dim whole = producer.dims[p];
    std::vector<DimDigit> digits;
    for (const Exchange& exchange : exchanges) {
      if (exchange.first.empty() || exchange.second.empty()) continue;
      for (size_t i = 0; i < exchange.first[0]->index.size() && digits.empty(); ++i) {
        if (exchange.first[0]->index[i] != whole.var) continue;
        digits = dim_digits(exchange.second[0]->index[i], consumer.dims, program.facts).value_or(digits);
      }
    }
    if (digits.size() < 2) continue;
    if (is_contraction(producer) && runs_through_weights(program, producer, whole.var)) continue;
    Expr count = 1;
    for (const DimDigit& digit : digits) count = count * consumer.dims[digit.dim].extent;
    if (!program.facts.holds(sym::eq(count, whole.extent))) continue;
    if (!split) split = producer;
    loop::Cloner names(*split);
    std::vector<Dim> parts;
    Expr index = 0;
    for (const DimDigit& digit : digits) {
      parts.insert(parts.begin(), {names.fresh_index(whole.var), consumer.dims[digit.dim].extent});
      index += parts[0].var * digit.step;
    }
    loop::substitute(split->body, {{whole.var, index}});
    const auto at = split->dims.begin() + dim_at(split->dims, whole.var);
    split->dims.insert(split->dims.erase(at), parts.begin(), parts.end());
  }
  if (split) loop::clean(program, *split);
  return split;
}

std::optional<Nest> split_groups(const Program& program, const Nest& first, const Nest& second,
                                 const std::vector<Exchange>& exchanges) {
  for (const Dim& whole : second.dims) {
    std::optional<Expr> size, groups;
    bool agreed = true;
    for (const Exchange& exchange : exchanges)
      for (const Access* load : exchange.second)
        for (size_t i = 0; i < load->index.size(); ++i) {
          const Expr index = load->index[i];
          if (!sym::depends_on(index, whole.var)) continue;
          const bool group = index.op() == sym::Op::kFloorDiv && index.arg(0) == whole.var &&
                             !sym::has_index(index.arg(1)) && (!size || *size == index.arg(1));
          const int dim = group ? dim_at(first.dims, exchange.first.at(0)->index[i]) : -1;
          agreed = agreed && dim >= 0;
          if (!agreed) break;
          size = index.arg(1);
          groups = first.dims[static_cast<size_t>(dim)].extent;
        }
    if (!agreed || !size || !program.facts.holds(sym::ge(*size, 1)) ||
        !program.facts.holds(sym::eq(*groups * *size, whole.extent)))
      continue;
    Nest split = second;
    loop::Cloner names(split);
    const std::vector<Dim> parts = {{names.fresh_index(whole.var), *groups},
                                    {names.fresh_index(whole.var), *size}};
    loop::substitute(split.body, {{whole.var, parts[0].var * *size + parts[1].var}});
    const auto at = split.dims.begin() + dim_at(split.dims, whole.var);
    split.dims.insert(split.dims.erase(at), parts.begin(), parts.end());
    loop::clean(program, split);
    return split;
  }
  return std::nullopt;
}

Exchanges exchanges_between(const Nest& first, const Nest& second) {
  return exchanges_between(first, second, effects_of(first), effects_of(second));
}

Exchanges exchanges_between(const Nest& first, const Nest& second, const Effects& before,
                            const Effects& after) {
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
  // The consumer's dim at the position of the producer's dim p in one component of the index, or -1.
  const auto partner_in = [&](size_t p, Expr first, Expr second) {
    if (first == producer.dims[p].var) return dim_at(consumer.dims, second);
    const auto from = dim_digits(first, producer.dims, program.facts),
               to = dim_digits(second, consumer.dims, program.facts);
    if (!from || !to || from->size() != to->size()) return -1;
    for (size_t d = 0; d < from->size(); ++d) {
      if (!program.facts.holds(sym::eq((*from)[d].step, (*to)[d].step))) return -1;
      if ((*from)[d].dim == static_cast<int>(p)) return (*to)[d].dim;
    }
    return -1;
  };
  Matching matching;
  for (size_t p = 0; p < producer.dims.size(); ++p) {
    int partner = -1;
    bool agreed = true;
    for (const Exchange& exchange : exchanges)
      for (const Access* first : exchange.first) {
        int component = -1;
        for (size_t i = 0; i < first->index.size(); ++i)
          if (sym::depends_on(first->index[i], producer.dims[p].var) &&
              (component < 0 || first->index[i] == producer.dims[p].var))
            component = static_cast<int>(i);
        for (const Access* second : exchange.second) {
          const int c = component < 0 ? -1 : partner_in(p, first->index[component], second->index[component]);
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
  flow.replace(kept, effects_of(merged));
  std::sort(gone.rbegin(), gone.rend());
  for (int at : gone) {
    const int moved = flow.erase(steps, at);
    if (at < kept) kept -= moved;
  }
  join_loops(merged);
  localise(program, merged, flow.counts());
  loop::clean(program, merged);
  flow.replace(kept, effects_of(merged));
  program[std::get<Launch>(steps[kept].node).nest] = std::move(merged);
  return kept;
}

}  // namespace stridec::schedule

// Merges contractions connected by rows into chains:
//
//   for r, n: s[r,n] = reduce k a[r,k] * b[n,k]          for r: for n: s[n] = reduce k a[r,k] * b[n,k]
//   for r: t[r,:] = softmax(s[r,:])                 ->          softmax of s in place
//   for r, j: o[r,j] = reduce n t[r,n] * c[n,j]                 for j: o[r,j] = reduce n s[n] * c[n,j]
#include <algorithm>
#include <optional>

#include "compiler/kernels/chain.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/fusion/fusion_join.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Launch;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using loop::Storage;

constexpr int kMostRowNests = 4;  // at most, between two contractions

int refuse(std::string* reason, std::string why) {
  *reason = std::move(why);
  return -1;
}

int refuse(std::string* reason, FusionRule rule) { return refuse(reason, std::string(info(rule).why)); }

bool is_launch(const loop::Steps& steps, int at) { return std::holds_alternative<Launch>(steps[at].node); }
const Nest& launched_nest(const Program& program, const loop::Steps& steps, int at) {
  return program[std::get<Launch>(steps[at].node).nest];
}

// The paths from a contraction to `at` along buffers that one step writes and the next reads. Most steps have
// none.
std::vector<std::vector<int>> ways_to(const Program& program, const loop::Steps& steps, const Flow& flow,
                                      int at, int depth) {
  std::vector<std::vector<int>> ways;
  for (BufferId id : flow.effects(at).reads) {
    if (program[id].storage != Storage::kArena) continue;
    const int p = writer_before(program, steps, flow, at, id);
    if (p < 0) continue;
    const Nest& producer = launched_nest(program, steps, p);
    if (is_contraction(producer)) {
      ways.push_back({p, at});
    } else if (depth > 0 && !is_pointwise(producer)) {
      for (std::vector<int>& way : ways_to(program, steps, flow, p, depth - 1)) {
        way.push_back(at);
        ways.push_back(std::move(way));
      }
    }
  }
  return ways;
}

bool reads_weights(const Program& program, const kernels::Factor& factor) {
  return std::any_of(factor.slice.begin(), factor.slice.end(), [&](const Stmt* stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    return load && program[load->access.buffer].storage == Storage::kParameter;
  });
}

// Makes the contiguous dim of the buffer the innermost dim of pointwise nests that write it.
void follow_layout(Program& program, BufferId buffer) {
  for (Nest& nest : program.nests) {
    if (!is_pointwise(nest) || nest.dims.size() < 2) continue;
    const auto* store = std::get_if<loop::Store>(&nest.body.back().node);
    if (!store || store->access.buffer != buffer) continue;
    for (size_t d = 0; d < store->access.index.size(); ++d) {
      if (!program[buffer].strides[d].is_const(1)) continue;
      const auto last = std::find_if(nest.dims.begin(), nest.dims.end(),
                                     [&](const loop::Dim& dim) { return dim.var == store->access.index[d]; });
      if (last != nest.dims.end()) std::rotate(last, last + 1, nest.dims.end());
    }
  }
}

// Whether the nest stores one element of the buffer at each point, outside its loops, and does not load it.
bool is_of_points(const Nest& nest, BufferId id) {
  int all = 0, outside = 0;
  loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    if (access && access->buffer == id) ++all;
  });
  for (const Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (store && store->access.buffer == id && !store->update) ++outside;
  }
  return all == 1 && outside == 1;
}

int chain_of(Program& program, loop::Steps& steps, Flow& flow, const std::vector<int>& members,
             const ChainRule& rule, std::string* reason) {
  const int consumer = members.back();
  // Each member's result is read by the next one alone, apart from numbers of whole rows.
  for (size_t i = 0; i + 1 < members.size(); ++i) {
    const Effects& made = flow.effects(members[i]);
    for (BufferId id : made.writes) {
      if (program[id].storage == Storage::kLocal) continue;
      if (i > 0 && !reads(flow.effects(members[i + 1]), id) &&
          is_of_points(launched_nest(program, steps, members[i]), id))
        continue;
      if (!made_once(program, flow, id)) return refuse(reason, FusionRule::kChainMemory);
      if (flow.reader_count(id) != 1 || !reads(flow.effects(members[i + 1]), id))
        return refuse(reason, FusionRule::kChainReader);
    }
    if (!may_move(program, steps, flow, members[i], consumer, members))
      return refuse(reason, FusionRule::kChainOrder);
  }

  Nest chain = launched_nest(program, steps, members[0]);
  for (size_t i = 1; i < members.size(); ++i) {
    const Nest& next = launched_nest(program, steps, members[i]);
    if (effects_of(chain).updates || effects_of(next).updates) return refuse(reason, "one scatters");
    const auto [passing, ordered] = exchanges_between(chain, next);
    const Matching matching = match_dims(program, chain, next, ordered);
    if (matching.empty()) return refuse(reason, FusionRule::kChainShared);
    const bool last = i + 1 == members.size();
    if (unmatched(next.dims, matching, false).empty() == last) return refuse(reason, FusionRule::kChainRows);
    if (i > 1 && !unmatched(chain.dims, matching, true).empty())
      return refuse(reason, FusionRule::kChainRows);
    chain = merged_nest(chain, next, matching);
  }
  if (statement_count(chain.body) > kMostStatements) return refuse(reason, "the nest would grow too long");

  // Localising cannot be undone, so it is tried on a copy.
  Program trial;
  trial.buffers = program.buffers;
  Nest trial_nest = chain;
  UserCounts counts = flow.counts();
  for (int at : members) counts.add(flow.effects(at), -1);
  counts.add(effects_of(chain), 1);
  trial.facts = program.facts;
  localise(trial, trial_nest, counts);
  loop::clean(trial, trial_nest);
  std::string why;
  const auto matched = kernels::match_chain(trial_nest, &why, rule.single);
  if (!matched) return refuse(reason, why);
  int links = 0;
  for (const kernels::Chain::Part& part : matched->parts) {
    if (!part.link) continue;
    ++links;
    if (reads_weights(trial, part.link->column_factor())) return refuse(reason, FusionRule::kChainWeights);
  }
  if (links != 2) return refuse(reason, FusionRule::kChainFactor);
  if (rule.fits) {
    if (!rule.fits(trial, trial_nest, &why)) return refuse(reason, why);
    for (size_t id = 0; id < program.buffers.size(); ++id) {
      loop::Buffer& buffer = program.buffers[id];
      if (buffer.storage != Storage::kArena || buffer.strides == trial.buffers[id].strides ||
          trial.buffers[id].storage != Storage::kArena)
        continue;
      buffer.strides = trial.buffers[id].strides;
      follow_layout(program, BufferId{static_cast<int32_t>(id)});
    }
  }

  const std::vector<int> gone(members.begin(), members.end() - 1);
  const int at = replace_steps(program, steps, flow, consumer, gone, std::move(chain));
  Nest& made = program[std::get<Launch>(steps[at].node).nest];
  share_rows(program, made);
  flow.replace(at, effects_of(made));
  return at;
}

class Chainer {
 public:
  Chainer(Program& program, const ChainRule& rule, std::vector<Decision>* decisions)
      : program_(program), rule_(rule), decisions_(decisions) {}

  void block(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at)
      if (is_launch(steps, at) && is_contraction(launched_nest(program_, steps, at)))
        at = chain(steps, flow, at);
  }

 private:
  // Makes the contraction at `consumer` the end of a chain if possible; returns its position.
  int chain(loop::Steps& steps, Flow& flow, int consumer) {
    std::vector<std::vector<int>> ways = ways_to(program_, steps, flow, consumer, kMostRowNests);
    // If several paths are refused, the reason of the longest is reported.
    std::sort(ways.begin(), ways.end(), [](const auto& x, const auto& y) {
      return x.size() != y.size() ? x.size() > y.size() : x < y;
    });
    std::optional<Decision> refused;
    for (const std::vector<int>& way : ways) {
      Decision decision;
      if (decisions_)
        decision =
            decision_about(program_, launched_nest(program_, steps, way[0]),
                           launched_nest(program_, steps, consumer), true, "chained: rows stay in cache");
      std::string reason;
      const int at = chain_of(program_, steps, flow, way, rule_, &reason);
      if (at >= 0) {
        record(std::move(decision));
        return absorb_factors(steps, flow, at);
      }
      decision.fused = false;
      decision.reason = "not chained: " + reason;
      if (!refused) refused = std::move(decision);
    }
    if (refused) record(*std::move(refused));
    return consumer;
  }

  // Inlines pointwise producers of the chain's factors where the factors are copied.
  int absorb_factors(loop::Steps& steps, Flow& flow, int at) {
    for (int p = at - 1; rule_.absorbs && p >= 0; --p) {
      const bool feeds = std::any_of(flow.effects(p).writes.begin(), flow.effects(p).writes.end(),
                                     [&](BufferId id) { return reads(flow.effects(at), id); });
      if (!feeds || !is_launch(steps, p)) continue;
      Decision decision;
      if (decisions_)
        decision = decision_about(program_, launched_nest(program_, steps, p),
                                  launched_nest(program_, steps, at), true, "inlined into a chain's factor");
      std::string reason;
      decision.fused = try_inline(program_, steps, flow, p, &reason, true);
      if (decision.fused)
        --at;
      else
        decision.reason = "not inlined: " + reason;
      record(std::move(decision));
    }
    loop::renumber(program_[std::get<Launch>(steps[at].node).nest]);
    return at;
  }

  void record(Decision decision) {
    if (decisions_) decisions_->push_back(std::move(decision));
  }

  Program& program_;
  const ChainRule& rule_;
  std::vector<Decision>* decisions_;
};

}  // namespace

void chain(Program& program, std::vector<Decision>* decisions) { chain(program, ChainRule{}, decisions); }

void chain(Program& program, const ChainRule& rule, std::vector<Decision>* decisions) {
  Chainer chainer(program, rule, decisions);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { chainer.block(steps); });
  loop::eliminate_dead_code(program);  // the backward pass of attention is matched in what is left
}

}  // namespace stridec::schedule

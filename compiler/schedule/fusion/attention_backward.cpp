#include "compiler/schedule/fusion/attention_backward.h"

#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <set>
#include <span>

#include "compiler/kernels/chain.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/fusion/attention_nest.h"
#include "compiler/schedule/fusion/attention_passes.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/heuristics/flash_backward.h"
#include "compiler/schedule/heuristics/streamed_chain.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Launch;
using loop::Nest;
using loop::Program;

// Whether a tensor that the one nest reads changes after the forward pass has read or written it, or while
// the steps run that the nest replaces.
bool changes(const Program& program, const Flow& flow, const ForwardPass& forward, const std::set<int>& gone,
             const Effects& nest) {
  std::map<BufferId, int> since;  // the step of the forward pass
  for (BufferId id : {forward.v.buffer, forward.o.buffer}) since[id] = forward.values;
  loop::for_each_stmt(forward.score.body, [&](const loop::Stmt& stmt) {
    if (const auto* load = std::get_if<loop::Load>(&stmt.node)) since[load->access.buffer] = forward.scores;
  });
  for (BufferId id : nest.reads) {
    if (static_cast<size_t>(id.value) >= program.buffers.size()) continue;  // of the nest alone
    const auto found = since.find(id);
    for (int step = found == since.end() ? *gone.begin() : found->second + 1; step <= *gone.rbegin(); ++step)
      if (!gone.contains(step) && writes(flow.effects(step), id)) return true;
  }
  return false;
}

// What a target makes of attention.
struct Rule {
  bool plain;  // scores are multiples of sums, apart from a causal mask
  std::string what;
  decltype(add_backward_nest)* add;
  // Whether the target has kernels for the nests that `add` has added, and they are worth it.
  std::function<bool(const Program& program, const std::vector<loop::NestId>& nests,
                     const ForwardPass& forward, std::string& why)>
      fits;
};

// Replaces the backward pass by launches at the place of its first step, or returns why not.
std::optional<std::string> apply(Program& program, loop::Steps& steps, const Flow& flow,
                                 const ForwardPass& forward, const BackwardPass& backward, const Rule& rule) {
  std::set<int> gone = backward.between;
  for (const BackwardProduct* product : {&backward.dq, &backward.dk, &backward.dv})
    gone.insert(product->step);

  Program copy;
  copy.buffers = program.buffers;
  copy.facts = program.facts;
  for (const auto& [id, strides] : forward.layouts) copy[id].strides = strides;
  const RowStatistics statistics = add_row_statistics(copy, forward.dims, rule.plain);
  const auto same = [&](const BackwardProduct& product) {
    return product.scale && static_cast<float>(*product.scale) == static_cast<float>(*forward.scale);
  };
  if (rule.plain && !(forward.scale && same(backward.dq) && same(backward.dk)))
    return "scores are more than multiples of sums";
  const auto added = rule.add(copy, program, steps, forward, backward, statistics);
  if (!added) return "a result is not computed element by element from its sum";
  std::string why;
  if (!rule.fits(copy, *added, forward, why)) return why;
  for (const loop::NestId id : *added)
    if (changes(program, flow, forward, gone, effects_of(copy[id])))
      return "a tensor that it reads changes in between";

  program.buffers = copy.buffers;
  std::vector<std::string> nodes;
  for (const int step : gone)
    for (const std::string& node : nest_at(program, steps, step)->nodes)
      if (std::ranges::count(nodes, node) == 0) nodes.push_back(node);
  loop::Steps launches;
  for (const loop::NestId id : *added) {
    copy[id].nodes = nodes;
    launches.push_back({Launch{loop::add_nest(program, std::move(copy[id]))}});
  }
  std::set<BufferId> unread(forward.weights.begin(), forward.weights.end());
  for (BufferId id : effects_of(*nest_at(program, steps, forward.values)).reads) unread.erase(id);
  store_row_statistics(program,
                       program[std::get<Launch>(steps[static_cast<size_t>(forward.softmax)].node).nest],
                       forward, statistics, unread);
  const int first = *gone.begin();
  for (const int step : std::views::reverse(gone)) steps.erase(steps.begin() + step);
  steps.insert(steps.begin() + first, launches.begin(), launches.end());
  return std::nullopt;
}

// Applies the first of the rules that can be applied.
bool apply_any(Program& program, loop::Steps& steps, const Flow& flow, const ForwardPass& forward,
               const BackwardPass& backward, std::span<const Rule> rules, std::vector<Decision>* decisions) {
  Decision decision;
  if (decisions)
    decision = decision_about(program, *nest_at(program, steps, forward.values),
                              *nest_at(program, steps, backward.dv.step), true, "");
  std::string before;  // why the rule before cannot be applied
  for (const Rule& rule : rules) {
    const auto refused = apply(program, steps, flow, forward, backward, rule);
    decision.fused = !refused;
    decision.reason = refused ? "attention's backward pass is not fused: " + *refused : rule.what + before;
    if (!refused) break;
    before = " (it is not one kernel: " + *refused + ")";
  }
  const bool fused = decision.fused;
  if (decisions) decisions->push_back(std::move(decision));
  return fused;
}

void fuse_all(Program& program, const ChainAttention& chain, std::span<const Rule> rules,
              std::vector<Decision>* decisions) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    Flow flow(program, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const auto forward = find_forward_pass(program, steps, flow, at, chain);
      const auto backward = forward ? find_backward_pass(program, steps, flow, *forward) : std::nullopt;
      if (backward && apply_any(program, steps, flow, *forward, *backward, rules, decisions))
        flow = Flow(program, steps);
    }
  });
}

}  // namespace

void fuse_attention_backward(Program& program, const GpuTarget& target, std::vector<Decision>* decisions) {
  const auto fits_one = [&](const Program& copy, const std::vector<loop::NestId>& nests, const ForwardPass&,
                            std::string& why) {
    return fits_flash_backward(copy, copy[nests[0]], target, &why);
  };
  const auto fits_chains = [&](const Program& copy, const std::vector<loop::NestId>& nests,
                               const ForwardPass&, std::string& why) {
    return std::ranges::all_of(nests | std::views::drop(1), [&](loop::NestId id) {
      return !streamed_chain_plans(copy, copy[id], target, &why).empty();
    });
  };
  const Rule rules[] = {
      {.plain = true,
       .what = "attention's backward pass is one kernel",
       .add = add_backward_nest,
       .fits = fits_one},
      {.plain = false,
       .what = "attention's backward pass computes the probabilities again, by rows and by keys",
       .add = add_streamed_backward_chains,
       .fits = fits_chains}};
  fuse_all(program, [&](Program& p) { chain_gpu(p, target); }, rules, decisions);
}

void chain_attention_backward(Program& program, std::vector<Decision>* decisions, double large) {
  const auto fits = [&](const Program& copy, const std::vector<loop::NestId>& nests,
                        const ForwardPass& forward, std::string& why) {
    for (const loop::NestId id : nests)
      if (!kernels::match_chain(copy[id], &why)) return false;
    double bytes = byte_size(forward.dtype) * typical(forward.key.extent, forward.facts);
    for (const loop::Dim& dim : forward.dims) bytes *= typical(dim.extent, forward.facts);
    if (!forward.seen && bytes < large) why = "no keys are hidden, and the probabilities are small";
    return why.empty();
  };
  const Rule rules[] = {{.plain = false,
                         .what = "attention's backward pass computes the probabilities again",
                         .add = add_backward_chains,
                         .fits = fits}};
  fuse_all(program, [](Program& p) { chain(p); }, rules, decisions);
}

}  // namespace stridec::schedule

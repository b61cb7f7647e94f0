#include "compiler/schedule/fusion/attention_backward.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/fusion/attention_nest.h"
#include "compiler/schedule/fusion/attention_passes.h"
#include "compiler/schedule/heuristics/flash_backward.h"

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
  for (BufferId id : {forward.q.buffer, forward.k.buffer}) since[id] = forward.scores;
  for (BufferId id : nest.reads) {
    if (static_cast<size_t>(id.value) >= program.buffers.size()) continue;  // of the nest alone
    const auto found = since.find(id);
    for (int step = found == since.end() ? *gone.begin() : found->second + 1; step <= *gone.rbegin(); ++step)
      if (!gone.contains(step) && writes(flow.effects[step], id)) return true;
  }
  return false;
}

// Replaces the backward pass by one launch at the place of its first step.
bool apply(Program& program, loop::Steps& steps, const Flow& flow, const ForwardPass& forward,
           const BackwardPass& backward, const GpuTarget& target, std::vector<Decision>* decisions) {
  Decision decision;
  if (decisions)
    decision = decision_about(program, *nest_at(program, steps, forward.values),
                              *nest_at(program, steps, backward.dv.step), true,
                              "attention's backward pass is one kernel");
  const auto refuse = [&](const std::string& why) {
    if (!decisions) return false;
    decision.fused = false;
    decision.reason = "attention's backward pass stays apart: " + why;
    decisions->push_back(std::move(decision));
    return false;
  };
  std::set<int> gone = backward.between;
  for (const BackwardProduct* product : {&backward.dq, &backward.dk, &backward.dv})
    gone.insert(product->step);

  Program copy;
  copy.buffers = program.buffers;
  copy.facts = program.facts;
  for (const auto& [id, strides] : forward.layouts) copy[id].strides = strides;
  loop::Buffer statistic{.name = "log_sum_exp", .dtype = DType::kF32};
  for (const loop::Dim& dim : forward.dims) statistic.shape.push_back(dim.extent);
  const BufferId log_sum_exp = loop::add_buffer(copy, std::move(statistic));
  const auto added = add_backward_nest(copy, program, steps, forward, backward, log_sum_exp);
  if (!added) return refuse("a result is not computed element by element from its sum");
  Nest& nest = copy[*added];
  std::string why;
  if (!fits_flash_backward(copy, nest, target, &why)) return refuse(why);
  if (changes(program, flow, forward, gone, effects_of(nest)))
    return refuse("a tensor that it reads changes in between");

  program.buffers = copy.buffers;
  for (const int step : gone)
    for (const std::string& node : nest_at(program, steps, step)->nodes)
      if (std::ranges::count(nest.nodes, node) == 0) nest.nodes.push_back(node);
  std::set<BufferId> unread(forward.weights.begin(), forward.weights.end());
  for (BufferId id : effects_of(*nest_at(program, steps, forward.values)).reads) unread.erase(id);
  store_log_sum_exp(program, program[std::get<Launch>(steps[static_cast<size_t>(forward.softmax)].node).nest],
                    forward, log_sum_exp, unread);
  const int first = *gone.begin();
  steps[static_cast<size_t>(first)].node = Launch{loop::add_nest(program, std::move(nest))};
  for (auto step = gone.rbegin(); *step != first; ++step) steps.erase(steps.begin() + *step);
  if (decisions) decisions->push_back(std::move(decision));
  return true;
}

}  // namespace

void fuse_attention_backward(Program& program, const GpuTarget& target, std::vector<Decision>* decisions) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) {
    Flow flow = make_flow(program, steps);
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const auto forward = find_forward_pass(program, steps, flow, at, target);
      const auto backward = forward ? find_backward_pass(program, steps, flow, *forward) : std::nullopt;
      if (backward && apply(program, steps, flow, *forward, *backward, target, decisions))
        flow = make_flow(program, steps);
    }
  });
  loop::eliminate_dead_code(program);
}

}  // namespace stridec::schedule

#include "compiler/schedule/fusion.h"

#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/schedule/fusion_rules.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Program;
using loop::Steps;

// The last launch before `consumer` that writes a buffer the consumer reads, from `from` downwards; -1: none.
int producer_before(const Flow& flow, int consumer, int from) {
  for (int p = from; p >= 0; --p)
    for (auto id : flow.effects[p].writes)
      if (reads(flow.effects[consumer], id)) return p;
  return -1;
}

class Fuser {
 public:
  Fuser(Program& program, std::vector<Decision>* decisions) : program_(program), decisions_(decisions) {}

  void block(Steps& steps) {
    for (auto& step : steps) {
      if (auto* branch = std::get_if<loop::If>(&step.node)) {
        block(branch->then_steps);
        block(branch->else_steps);
      }
      if (auto* loop = std::get_if<loop::While>(&step.node)) block(loop->body);
    }
    Flow flow = make_flow(program_, steps);
    for (int at = 0; at < static_cast<int>(steps.size());) {
      const int next = absorb_producers(steps, flow, at);
      at = next < 0 ? at + 1 : next;
    }
  }

 private:
  // Fuses one producer into the step at `consumer`; gives the position to go on from, or -1 when nothing
  // fuses.
  int absorb_producers(Steps& steps, Flow& flow, int consumer) {
    if (!std::holds_alternative<Launch>(steps[consumer].node)) return -1;
    for (int p = producer_before(flow, consumer, consumer - 1); p >= 0;
         p = producer_before(flow, consumer, p - 1)) {
      if (!std::holds_alternative<Launch>(steps[p].node)) continue;
      const std::string producer_name = program_[std::get<Launch>(steps[p].node).nest].name;
      const std::string consumer_name = program_[std::get<Launch>(steps[consumer].node).nest].name;
      std::string why_not_inlined, why_not_merged;
      if (try_inline(program_, steps, flow, p, &why_not_inlined)) {
        record({producer_name, consumer_name, true, "inlined"});
        return consumer - 1;
      }
      const int merged = try_merge(program_, steps, flow, p, consumer, &why_not_merged);
      if (merged >= 0) {
        record({producer_name, consumer_name, true, "merged"});
        return merged;
      }
      record({producer_name, consumer_name, false,
              "not inlined: " + why_not_inlined + "; not merged: " + why_not_merged});
    }
    return -1;
  }

  void record(Decision decision) {
    if (decisions_) decisions_->push_back(std::move(decision));
  }

  Program& program_;
  std::vector<Decision>* decisions_;
};

}  // namespace

void fuse(Program& program, std::vector<Decision>* decisions) {
  Fuser(program, decisions).block(program.steps);
  loop::compact(program);
}

}  // namespace stridec::schedule

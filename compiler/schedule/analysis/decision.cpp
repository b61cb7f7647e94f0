#include "compiler/schedule/analysis/decision.h"

#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {

Decision decision_about(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                        bool fused, std::string reason, sym::Expr bytes) {
  Decision decision = decision_about(producer, consumer.name, fused, std::move(reason), bytes);
  decision.apart = false;
  decision.consumer_nodes = consumer.nodes;
  const Effects reading = effects_of(consumer);
  for (const loop::BufferId id : effects_of(producer).writes)
    if (reads(reading, id)) decision.passing.push_back(program[id].name);
  return decision;
}

Decision decision_about(const loop::Nest& nest, std::string what, bool fused, std::string reason,
                        sym::Expr bytes) {
  return {.producer = nest.name,
          .consumer = std::move(what),
          .fused = fused,
          .reason = std::move(reason),
          .bytes = bytes,
          .apart = true,
          .producer_nodes = nest.nodes,
          .consumer_nodes = {},
          .passing = {}};
}

}  // namespace stridec::schedule

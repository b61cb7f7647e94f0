#include "compiler/schedule/analysis/decision.h"

#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {

Decision decision_about(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                        bool fused, std::string reason, sym::Expr bytes) {
  const Effects reading = effects_of(consumer);
  std::vector<loop::BufferId> passing = effects_of(producer).writes;
  std::erase_if(passing, [&](loop::BufferId id) { return !reads(reading, id); });
  return decision_about(program, producer, consumer, passing, fused, std::move(reason), bytes);
}

Decision decision_about(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                        std::span<const loop::BufferId> passing, bool fused, std::string reason,
                        sym::Expr bytes) {
  Decision decision = decision_about(producer, consumer.name, fused, std::move(reason), bytes);
  decision.apart = false;
  decision.consumer_nodes = consumer.nodes;
  for (const loop::BufferId id : passing) decision.passing.push_back(program[id].name);
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

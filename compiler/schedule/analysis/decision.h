// Records what a pass decided about one nest or a pair of nests, for `inspect --stage=schedule`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// One decision: what was fused with what, or why not.
struct Decision {
  std::string producer, consumer;  // names of nests, or of whatever else the decision is about
  bool fused = false;
  std::string reason;
  // Memory traffic in bytes that fusion saves or would save: the producer's store plus the consumer's load,
  // or only one of the two if the buffer has other readers. 0 for decisions of another kind.
  sym::Expr bytes = 0;
  // The decision is about one nest, the producer, which the transform named by `consumer` splits into
  // several.
  bool apart = false;
  // The model's nodes of each nest; empty for decisions of another kind.
  std::vector<std::string> producer_nodes, consumer_nodes;
  // Names of the buffers that the producer writes and the consumer reads. For a buffer moved into another
  // one, its own name; `consumer` is then the other buffer.
  std::vector<std::string> passing;
};
// A decision about two nests, filled with their nodes and the buffers between them.
Decision decision_about(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                        bool fused, std::string reason, sym::Expr bytes = 0);
// The same; `passing`: the buffers between them, if they are known.
Decision decision_about(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                        std::span<const loop::BufferId> passing, bool fused, std::string reason,
                        sym::Expr bytes = 0);
// A decision about one nest, with its nodes, that the transform `what` split into several nests or left
// whole.
Decision decision_about(const loop::Nest& nest, std::string what, bool fused, std::string reason,
                        sym::Expr bytes = 0);

}  // namespace stridec::schedule

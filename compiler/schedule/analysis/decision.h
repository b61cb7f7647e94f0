// What a pass decided about one nest or two, for `inspect --stage=schedule`.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// One decision, for `inspect --stage=schedule`: what was fused with what, or the reason why not.
struct Decision {
  std::string producer, consumer;  // names of nests, or what else it is about
  bool fused = false;
  std::string reason;
  // Of memory traffic that fusing saves, or would: what the producer stores and the consumer loads, once where others
  // read it too. 0 for decisions of another kind.
  sym::Expr bytes = 0;
  bool apart = false;  // it is about one nest, the producer, which `consumer` made several of
  // The model's nodes: of both nests, or of the one; empty for decisions of another kind.
  std::vector<std::string> producer_nodes, consumer_nodes;
  // Names of buffers that the producer writes and the consumer reads; of one that was moved into another, which `consumer`
  // then is, its own.
  std::vector<std::string> passing;
};
// About these two, with their nodes and what passes between them.
Decision decision_about(const loop::Program& program, const loop::Nest& producer, const loop::Nest& consumer,
                        bool fused, std::string reason, sym::Expr bytes = 0);
// About one that `what` made several of, or did not, with its nodes.
Decision decision_about(const loop::Nest& nest, std::string what, bool fused, std::string reason,
                        sym::Expr bytes = 0);

}  // namespace stridec::schedule

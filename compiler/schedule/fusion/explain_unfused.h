// Which kernels of a finished program pass data on through memory, or might have been one, and what the rules of fusion said
// of that. For `inspect --stage=schedule`.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/kernels.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

struct Unfused {
  const loop::Kernel *producer, *consumer;
  std::vector<std::string>
      reasons;  // in the order of the rules, each once; empty: no rule takes such kernels together
  std::vector<sym::Expr> bytes;  // that the rules said fusing would save
};

// In the order of the kernels (loop::kernels_of), those by consumers that read what producers write first. Rules ask again
// with each nest that grows, and what one refuses another may fuse: what counts is which kernels there are in the end, and of
// which buffers and nodes of the model a decision was.
std::vector<Unfused> explain_unfused(const loop::Program& program, const std::vector<loop::Kernel>& kernels,
                                     const std::vector<Decision>& decisions);

}  // namespace stridec::schedule

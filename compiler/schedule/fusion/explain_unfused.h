// Lists pairs of kernels in a finished program that exchange data through memory or that fusion considered,
// with the reasons the fusion rules gave. For `inspect --stage=schedule`.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/kernels.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

struct Unfused {
  const loop::Kernel *producer, *consumer;
  // In the order of the rules, each once; empty if no rule applies to such a pair.
  std::vector<std::string> reasons;
  // The traffic in bytes that the rules said fusing would save.
  std::vector<sym::Expr> bytes;
};

// Pairs are in the order of the kernels (loop::kernels_of), by consumer, with those that read the producer's
// output first. Rules ask again as nests grow, and one rule may fuse what another refuses. So only the final
// kernels count; decisions are matched to them by their buffers and the model's nodes.
std::vector<Unfused> explain_unfused(const loop::Program& program, const std::vector<loop::Kernel>& kernels,
                                     const std::vector<Decision>& decisions);

}  // namespace stridec::schedule

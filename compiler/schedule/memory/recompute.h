// Recomputation: computes tensors again where they are needed, in place of keeping them, so that a run needs
// less memory.
//
//   t = f(x)             t = f(x)
//   y = g(t)             y = g(t)
//   ... peak ...   ->    ... peak ...          (t does not take memory here)
//                        t2 = f(x)
//   z = h(t, ...)        z = h(t2, ...)
//
// A training step keeps what its backward pass reads of the forward pass; this trades time for that memory
// ("checkpointing"; Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174). The pass
// does not know forward from backward: it works on the scheduled program, where a tensor is one that fusion
// left in memory, and a launch can run a second time as it is.
//
// At the peak of live memory, each tensor that the step there does not touch is a candidate. The launch that
// computes it is repeated before its next use, together with launches for operands that are dead by then, or
// else these operands are kept. The candidate that frees the most bytes for the least work is taken, and the
// peak is looked for again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// What a run's arena may take: bytes, or a share of what recomputation can save: 1 keeps all tensors, 0 takes
// the least memory that recomputation reaches, 0.5 is halfway between the two.
struct MemoryBudget {
  double share = 1;
  std::optional<int64_t> bytes;
};

// A tensor that is computed again.
struct Recomputed {
  std::string tensor;              // name of its buffer
  std::vector<std::string> nodes;  // the model's nodes that compute it
  std::string before;              // name of the step that needs it
  int64_t bytes = 0;               // of the tensor, at typical sizes
  int64_t flops = 0;               // of computing it once, likewise
};

struct RecomputePlan {
  // Bytes of the arena at typical sizes: as planned, with every tensor kept, and the least that was reached.
  int64_t arena = 0, keeping_all = 0, least = 0;
  std::vector<Recomputed> recomputed;  // in the order of the run
};

// Bytes of the arena that memory planning gives a program, at typical sizes.
using ArenaBytes = std::function<int64_t(const loop::Program&)>;

// Recomputes as little as the budget allows. The arena never grows when the budget shrinks. If no program
// within a budget in bytes is found, the one with the smallest arena is taken; the caller compares
// RecomputePlan::arena.
RecomputePlan recompute(loop::Program& program, const MemoryBudget& budget, const ArenaBytes& arena_bytes);

}  // namespace stridec::schedule

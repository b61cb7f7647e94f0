// How much of the scratch buffers a run has in memory at once, and when, for passes that lower it: what is alive together
// at each of the program's top steps, of a few sizes of the symbols. memory_plan.h finds places for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// Steps that would run as one, at the place of the last of them: what passes between them takes `bytes` a thread.
struct StepGroup {
  std::vector<int> at;  // positions among the program's steps, in order
  std::vector<loop::BufferId> own;
  sym::Expr bytes;
};

// A copy of a part of a buffer behind step `after`, which all later steps read in its place.
struct PartCopy {
  loop::BufferId from;
  int after;
  sym::Expr bytes;
};

class Alive {
 public:
  Alive(const loop::Program& program, const Flow& flow);

  // Bytes, by the sizes, then at 2 * step; of a group at its last step, of a copy at 2 * after + 1.
  std::vector<std::vector<int64_t>> curves(std::span<const StepGroup> groups,
                                           std::span<const PartCopy> copies = {}) const;

 private:
  int64_t evaluate(sym::Expr bytes, size_t sizes) const;

  const loop::Program& program_;
  const Flow& flow_;
  std::vector<std::vector<int64_t>> bytes_;  // by the sizes, then of each buffer
  std::vector<StepGroup> strips_;            // of the program as it is
};

}  // namespace stridec::schedule

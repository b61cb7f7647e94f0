// Liveness: how many bytes of scratch buffers are live at each of the program's top-level steps, at a few
// sizes of the symbols, for passes that lower the peak. memory_plan.h assigns the places.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// Steps that would run as one, at the position of the last of them; their intermediates take `bytes` per
// thread.
struct StepGroup {
  std::vector<int> at;  // positions among the program's steps, in order
  std::vector<loop::BufferId> own;
  sym::Expr bytes;
};

// A copy of a part of a buffer after step `after`, which all later steps read instead.
struct PartCopy {
  loop::BufferId from;
  int after;
  sym::Expr bytes;
};

class Liveness {
 public:
  Liveness(const loop::Program& program, const Flow& flow);

  // Live bytes, indexed by size set, then by 2 * step. A group counts at its last step, a copy at
  // 2 * after + 1.
  std::vector<std::vector<int64_t>> curves(std::span<const StepGroup> groups,
                                           std::span<const PartCopy> copies = {}) const;

 private:
  int64_t evaluate(sym::Expr bytes, size_t sizes) const;

  const loop::Program& program_;
  const Flow& flow_;
  std::vector<std::vector<int64_t>> bytes_;  // by size set, then by buffer
  std::vector<StepGroup> strips_;            // the tiled groups the program already has
};

}  // namespace stridec::schedule

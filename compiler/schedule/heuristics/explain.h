// Explains a kernel's schedule by the costs of the alternatives, for `inspect --stage=schedule`.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/schedule/heuristics/choose.h"

namespace stridec::schedule {

struct Choice {
  // By launch; more than one if nests are equal but for their buffers.
  std::vector<loop::NestId> nests;
  loop::Schedule schedule;
  // Given by the tuning database or by measuring; otherwise chosen by the analytical model.
  bool given = false;
  // Part of a tiled group, which has no entry in the tuning database and needs none.
  bool in_tiled_group = false;
  double cycles = 0;  // that the model expects, of one core, symbols at typical sizes
  size_t space = 0;   // number of possible schedules
  struct Other {
    std::string family;
    double cycles;
  };
  std::vector<Other> others;  // the best of each other family, by cycles
};

// Call after layouts are final and nests renumbered, and before anything is scheduled.
std::vector<Choice> explain(const loop::Program& program, const CpuTarget& target, const Chosen& chosen);

}  // namespace stridec::schedule

// Why a kernel runs as it does: what the schedules that it could have would cost. For `inspect --stage=schedule`.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/schedule/heuristics/choose.h"

namespace stridec::schedule {

struct Choice {
  std::vector<loop::NestId> nests;  // by launch; more than one where nests are equal but for their buffers
  loop::Schedule schedule;
  bool given = false;           // by the tuning database or by measuring; else the analytic model's
  bool in_tiled_group = false;  // strips run it: it has no entry in the tuning database and needs none
  double cycles = 0;            // that the model expects, of one core, symbols at a typical size
  size_t space = 0;             // schedules that there are
  struct Other {
    std::string family;
    double cycles;
  };
  std::vector<Other> others;  // the best of each other family, by cycles
};

// Layouts are final, nests renumbered, and nothing is scheduled yet.
std::vector<Choice> explain(const loop::Program& program, const CpuTarget& target, const Chosen& chosen);

}  // namespace stridec::schedule

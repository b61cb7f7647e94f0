// Chooses how the general loop emitter runs a nest: merged dims, the vectorised dim and the tasks.
//
// Decides by strides alone. Dims whose accesses are jointly contiguous are merged. Dims whose index
// expressions divide by constants are split so that the divisions disappear. The nest is vectorised along the
// dim for which most accesses have unit stride: for a row reduction the reduced dim, with several vector
// accumulators; for a column reduction a parallel dim. The rest is distributed in tasks large enough for a
// thread. Nothing is specialised: every choice holds for all sizes that the symbols allow.
#pragma once

#include "compiler/base/target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {

LoopPlan general_plan(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);

struct RankedLoopPlan {
  LoopPlan plan;
  double cycles;  // of one core, symbols at typical sizes
};
// general_plan() and the alternatives that the model distinguishes: lanes along another dim, more or fewer
// vectors side by side, larger or smaller tasks, more or less work per thread. Each can run. The first is
// general_plan(); the others are in no order.
std::vector<RankedLoopPlan> general_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target);

// Gives a schedule to every nest of the program that has none, prepack nests included.
void choose_general(loop::Program& program, const CpuTarget& target);

}  // namespace stridec::schedule

// How the general loop emitter runs a nest: which dims become one, which runs along the lanes, what is a
// task.
//
// By strides alone. Dims whose accesses are jointly contiguous merge; dims whose index expressions divide by
// constants are split so that the divisions go; lanes run where most accesses then have unit stride (a row
// reduction: along the reduced dim, with several vectors of partial results; a column reduction: along a
// parallel dim); what is left is handed out in tasks that are worth a thread. Nothing is specialised: every
// choice holds for all sizes that the symbols allow.
#pragma once

#include "compiler/base/target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {

LoopPlan general_plan(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);

struct RankedLoopPlan {
  LoopPlan plan;
  double cycles;  // of one core, for symbols at a typical size
};
// general_plan() and what else the model tells apart: lanes along another dim, more or fewer vectors side by
// side, larger or smaller tasks, more or less work for a thread. Each can run; the first is general_plan(), the others in no order.
std::vector<RankedLoopPlan> general_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target);

// Gives every nest of the program, prepack nests included, that has no schedule one.
void choose_general(loop::Program& program, const CpuTarget& target);

}  // namespace stridec::schedule

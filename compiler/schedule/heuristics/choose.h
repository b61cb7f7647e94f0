// A schedule for every nest of a program, for one instruction set.
#pragma once

#include <map>

#include "compiler/base/target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Schedules of nests that are not to get the default one (tuned, replayed): of schedule/heuristics/candidates.h.
struct Chosen : std::map<loop::NestId, loop::Schedule> {
  using std::map<loop::NestId, loop::Schedule>::map;
};

// Every nest gets its schedule; what the schedules want packed is packed (in Program::prepack). Layouts are final.
void choose(loop::Program& program, const CpuTarget& target, const Chosen& chosen);

}  // namespace stridec::schedule

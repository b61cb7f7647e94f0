// Chooses a schedule for every nest of a program, for one instruction set.
#pragma once

#include <map>

#include "compiler/base/target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Schedules of nests that do not get the default (tuned or replayed); each is one of
// schedule/heuristics/candidates.h.
struct Chosen : std::map<loop::NestId, loop::Schedule> {
  using std::map<loop::NestId, loop::Schedule>::map;
};

// Gives every nest its schedule and packs the weights that the schedules require packed (in
// Program::prepack). Runs after layouts are final.
void choose(loop::Program& program, const CpuTarget& target, const Chosen& chosen);

}  // namespace stridec::schedule

// A schedule for every nest of a program, for one instruction set.
#pragma once

#include "compiler/base/target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Contractions that a micro-kernel fits get its plan, the others loops; what the plans want packed is packed
// (in Program::prepack). Layouts are final.
void choose(loop::Program& program, const CpuTarget& target);

}  // namespace stridec::schedule

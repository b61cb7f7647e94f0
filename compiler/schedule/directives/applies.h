// Checks whether the directives of a schedule for plain loops (no template) apply to a nest on a CPU.
//
// Any schedule is checked, whether default, tuned or hand-written. If all its directives apply, the generated
// code gives the interpreter's results, however slowly. Code generation accepts no other schedule.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {

// Returns the first directive that does not apply, and why: "'split %i0 4': 4 is not known to divide n".
// Returns an empty string if all apply.
std::string why_illegal(const loop::Program& program, const loop::Nest& nest, const loop::Schedule& schedule);

// The loads at the top level of the nest's body that have unit stride along `across` and a stride other than
// 0 and 1 along `lanes`: those that `transpose` transposes.
std::vector<const loop::Load*> transposable_loads(const loop::Program& program, const loop::Nest& nest,
                                                  sym::Expr across, sym::Expr lanes);

// Whether several points of a nest can be computed together, statement by statement, along `dim`; otherwise
// `reason` says why not. The nest may not update memory, end the run, contain a scan or use memory local to a
// point, and no inner extent may depend on the dim.
bool can_unroll_and_jam(const loop::Program& program, const loop::Nest& nest, sym::Expr dim,
                        std::string* reason = nullptr);

}  // namespace stridec::schedule

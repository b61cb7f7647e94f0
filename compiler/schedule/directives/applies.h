// Whether the directives of a schedule of loops without a template apply to a nest on a CPU.
//
// A schedule is asked from wherever it comes: the defaults, the tuner's database, a hand. One whose directives all apply gives
// what the interpreter gives, however slowly; code generation takes no other.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {

// The first directive that does not apply, and why: "'split %i0 4': 4 is not known to divide n". Empty: all of them do.
std::string why_not(const loop::Program& program, const loop::Nest& nest, const loop::Schedule& schedule);

// Loads at the top of the nest's body that run along `across` through memory, and along `lanes` in steps: what `transpose`
// turns.
std::vector<const loop::Load*> crossing_loads(const loop::Program& program, const loop::Nest& nest,
                                              sym::Expr across, sym::Expr lanes);

// Whether several points of a nest can be done together, statement by statement, along `dim`; `reason`: why not. Nothing
// may update memory, end the run, have steps in order or memory of a point's own, and no range inside may depend on the dim.
bool can_do_together(const loop::Program& program, const loop::Nest& nest, sym::Expr dim,
                     std::string* reason = nullptr);

}  // namespace stridec::schedule

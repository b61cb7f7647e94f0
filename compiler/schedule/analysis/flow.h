// Which steps read and write each buffer, and which steps may change places.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {

// Who touches what in one list of steps; kept up to date by the rules.
struct Flow {
  std::vector<Effects> effects;  // by position; control flow counts as all that is inside
  std::vector<int> total_writers,
      total_readers;  // by buffer: steps of the whole program, nested ones included
};
Flow make_flow(const loop::Program& program, const loop::Steps& steps);
// A buffer that one step writes, and nobody outside of the program reads.
bool made_once(const loop::Program& program, const Flow& flow, loop::BufferId id);
// And that one step reads.
bool passes_once(const loop::Program& program, const Flow& flow, loop::BufferId id);

// May the nest at `from` move to just before (or, moving down, just after) all steps strictly between the two, but
// those in `with`, which move along? Upwards it may not pass what binds a symbol that it uses. It may pass what touches
// other parts of the same buffers.
bool may_move(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int from, int to,
              const std::vector<int>& with = {});

}  // namespace stridec::schedule

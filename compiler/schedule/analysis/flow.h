// Tells which steps read and write each buffer, and which steps may be reordered.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/effects.h"

namespace stridec::schedule {

// Readers and writers of each buffer in one list of steps; the fusion rules keep it up to date.
struct Flow {
  std::vector<Effects> effects;  // by position; control flow counts with everything inside it
  // By buffer: the number of steps of the whole program, nested ones included.
  std::vector<int> total_writers, total_readers;
};
Flow make_flow(const loop::Program& program, const loop::Steps& steps);
// The last step before `at` that writes the buffer, if it is a launch; otherwise -1.
int writer_before(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int at,
                  loop::BufferId id);
// Whether the buffer is an arena buffer that exactly one step writes.
bool made_once(const loop::Program& program, const Flow& flow, loop::BufferId id);
// Whether, in addition, exactly one step reads it.
bool passes_once(const loop::Program& program, const Flow& flow, loop::BufferId id);

// Whether the nest at `from` may move to just before (when moving up) or just after (when moving down) `to`,
// past all steps strictly between the two except those in `with`, which move along. It may not move up past a
// step that binds a symbol it uses. It may pass steps that touch disjoint parts of the same buffers.
bool may_move(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int from, int to,
              const std::vector<int>& with = {});

}  // namespace stridec::schedule

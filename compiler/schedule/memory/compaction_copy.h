// Copies the elements that later steps read of a buffer, for example every other row and column, so that the
// rest of the buffer can be freed.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// What the steps after `after` read of a buffer: along each dim every scale-th place from `low` on.
struct Part {
  loop::BufferId from;
  int after;  // the last step that reads other elements as well
  std::vector<Along> dims;
  std::vector<sym::Expr> shape;
  sym::Expr bytes;
};
// The parts that the program's top-level steps read.
std::vector<Part> parts_read(const loop::Program& program, const Flow& flow);

// Inserts the copy after the step at `after`; later readers use the copy.
void copy_part(loop::Program& program, const Flow& flow, const Part& part, int after);

}  // namespace stridec::schedule

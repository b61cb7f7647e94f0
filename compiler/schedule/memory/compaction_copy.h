// Copies of what later steps read of a buffer, every other row and column say, so that the rest need not stay.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// What the steps behind `after` read of a buffer: of each dim every scale-th place from `low` on.
struct Part {
  loop::BufferId from;
  int after;  // the last step that reads the rest as well
  std::vector<Along> dims;
  std::vector<sym::Expr> shape;
  sym::Expr bytes;
};
// Of the program's top steps.
std::vector<Part> parts_read(const loop::Program& program, const Flow& flow);

// Behind the step at `after`; what reads it comes later.
void copy_part(loop::Program& program, const Flow& flow, const Part& part, int after);

}  // namespace stridec::schedule

// Sizes that cost models reckon with where a model's are symbols.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Each symbol at the middle of its range, at most kTypicalSize (schedule/memory/memory_plan.h).
double typical(sym::Expr e, const sym::Facts& facts);
double typical_bytes(const loop::Program& program, loop::BufferId id);  // of a buffer's elements
// Points of a nest of the dims, each of them at least once.
double typical_points(const std::vector<loop::Dim>& dims, const sym::Facts& facts);

}  // namespace stridec::schedule

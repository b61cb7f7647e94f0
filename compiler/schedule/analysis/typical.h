// Sizes that cost models reckon with where a model's are symbols.
#pragma once

#include <cstdint>

#include "compiler/loop/program.h"

namespace stridec::schedule {

inline constexpr int64_t kTypicalSize = 128;
// Other sizes and numbers of threads at which memory plans are judged.
inline constexpr int64_t kLargeSize = 1024, kModestSize = 8, kSmallSize = 1;
inline constexpr int64_t kManyThreads = 8, kFewThreads = 2;

// Each symbol at the middle of its range, at most kTypicalSize.
double typical(sym::Expr e, const sym::Facts& facts);
double typical_bytes(const loop::Program& program, loop::BufferId id);  // of a buffer's elements
// Points of a nest of the dims, each of them at least once.
double typical_points(const std::vector<loop::Dim>& dims, const sym::Facts& facts);

}  // namespace stridec::schedule

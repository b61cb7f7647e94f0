// Sizes that cost models assume where a model's sizes are symbols.
#pragma once

#include <cstdint>
#include <functional>

#include "compiler/loop/program.h"

namespace stridec::schedule {

inline constexpr int64_t kTypicalSize = 128;
// Further sizes and thread counts at which memory plans are evaluated.
inline constexpr int64_t kLargeSize = 1024, kModestSize = 8, kSmallSize = 1;
inline constexpr int64_t kManyThreads = 8, kFewThreads = 2;

// The middle of a symbol's range, at most kTypicalSize.
int64_t typical_size(const sym::Interval& range);
// The value of `e` with each symbol at its typical size.
double typical(sym::Expr e, const sym::Facts& facts);
double typical_bytes(const loop::Program& program, loop::BufferId id);  // of the buffer's elements
// Smaller tensors stay in a cache between two kernels.
inline constexpr double kCachedBytes = 4 << 20;
// The number of points of a nest over the dims, counting each dim as at least 1.
double typical_points(const std::vector<loop::Dim>& dims, const sym::Facts& facts);
// Iterations of the longest of the block's loops, with the loops inside it, at least 1; `points`: of dims.
double longest_loops(const loop::Block& block,
                     const std::function<double(const std::vector<loop::Dim>&)>& points);

}  // namespace stridec::schedule

// Matches nests whose points each reduce a small window, such as depthwise convolutions and pooling, for GPU
// threads that compute several neighbouring points.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::kernels {

// Holds pointers into the nest. Every reduction has at most kMostTaps taps, uses only values that it computes
// itself, `given` ones and results of the reductions before it, and contains no loops. There are no other
// loops, and no store updates.
struct PointWindow {
  std::vector<const loop::Stmt*> given;  // constants and functions of indices before the reductions
  std::vector<const loop::Reduce*> reduces;
  std::vector<const loop::Load*> loads;  // loads of the reductions
};
constexpr int64_t kMostTaps = 64;
std::optional<PointWindow> match_point_window(const loop::Program& program, const loop::Nest& nest);

// The values of the reduction's dims for each tap, in order.
std::vector<std::vector<int64_t>> taps_of(const loop::Reduce& reduce);
// The access with these values substituted for its indices. Equal results touch the same element.
using Indices = std::vector<std::pair<sym::Expr, sym::Expr>>;
loop::Access access_at(const loop::Access& access, const Indices& indices, const sym::Facts& facts);

// How a thread that computes a block of points, several along some dims, iterates over its windows. Without a
// RowLoop all taps are unrolled. With one, a loop iterates over the loaded rows: used if there are too many
// taps to unroll or if the block has points along two dims. A point r further along the dim `across` (an
// index into `along`) reads the same element r * step taps earlier in the window's first dim.
struct RowLoop {
  size_t across = 0;
  int64_t step = 0;  // 0: rows of points share no elements
};
// `lanes`: points of the block.
std::optional<RowLoop> window_row_loop(const loop::Reduce& reduce, const std::vector<sym::Expr>& along,
                                       int64_t lanes);

// Orders accesses to one buffer by their indices and masks.
struct AccessLess {
  bool operator()(const loop::Access& a, const loop::Access& b) const;
};

}  // namespace stridec::kernels

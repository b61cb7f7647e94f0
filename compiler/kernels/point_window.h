// Nests whose points each reduce a small window, as depthwise convolutions and pooling do: what a GPU's thread that does
// several neighbouring points wants to know of them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::kernels {

// Points into the nest. Every reduce has at most kMostTaps taps, takes nothing but what it computes itself, and has no
// loops in it; nothing else has loops either, and no store updates.
struct PointWindow {
  std::vector<const loop::Reduce*> reduces;
  std::vector<const loop::Load*> loads;  // of the reduces
};
constexpr int64_t kMostTaps = 64;
std::optional<PointWindow> match_point_window(const loop::Program& program, const loop::Nest& nest);

// The values of the reduce's dims, tap after tap in its order.
std::vector<std::vector<int64_t>> taps_of(const loop::Reduce& reduce);
// The access where indices are these. Equal ones touch the same element.
using Indices = std::vector<std::pair<sym::Expr, sym::Expr>>;
loop::Access access_at(const loop::Access& access, const Indices& indices, const sym::Facts& facts);

// How a thread that does a block of points, several along some dims, goes through its windows: all taps unrolled, or, where
// that is too much or the block has points along two dims, row after row of what is loaded, a loop. Points that lie r
// further along the dim `across` (of those given) are r * step taps of the first dim of the window behind.
struct RowLoop {
  size_t across = 0;
  int64_t step = 0;  // 0: rows of points have nothing in common
};
// `lanes`: points of the block.
std::optional<RowLoop> row_loop(const loop::Reduce& reduce, const std::vector<sym::Expr>& along,
                                int64_t lanes);

// An order of such accesses to one buffer, by their indices and masks.
struct AccessLess {
  bool operator()(const loop::Access& a, const loop::Access& b) const;
};

}  // namespace stridec::kernels

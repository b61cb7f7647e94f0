// Nests whose points each reduce a small window, as depthwise convolutions and pooling do: what a GPU's thread that does
// several neighbouring points wants to know of them.
#pragma once

#include <optional>
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
// The access at one tap, `shift` points further along `var`. Equal ones touch the same element.
loop::Access access_at(const loop::Access& access, const loop::Reduce& reduce,
                       const std::vector<int64_t>& tap, sym::Expr var, int64_t shift,
                       const sym::Facts& facts);

// An order of such accesses to one buffer, by their indices and masks.
struct AccessLess {
  bool operator()(const loop::Access& a, const loop::Access& b) const;
};

}  // namespace stridec::kernels

// Rows of a contraction that see the same elements at other places of their windows (GemmPlan::A::kLines).
//
// Where a window's place `tap` of row `y` lies at step * y + dilation * tap, two taps that are a multiple of the step apart see
// the same elements, so many rows apart. One copy of them in scratch, of whole lines of the rows inside of y, serves both: a
// tile's rows for the later tap lie some lines behind those for the earlier one, at the same distance from each other.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::kernels {

struct Lines {
  size_t row;  // of the rows: y. Those outside of it number images, which begin anew
  struct Copy {
    int64_t tap;    // the first that sees it: the copy's line y is what row y sees there
    int64_t lines;  // beyond those of an image's rows, that later taps see
  };
  std::vector<Copy> copies;  // fewer than taps
  struct Tap {
    size_t copy;
    int64_t shift;  // lines
  };
  std::vector<Tap> taps;
};

// `tap`: a reduced dim. Nothing where no two of its places see the same.
std::optional<Lines> match_lines(const loop::Access& access, const std::vector<loop::Dim>& rows,
                                 const loop::Dim& tap, const sym::Facts& facts);

}  // namespace stridec::kernels

// Finds rows of a contraction that read the same elements at different taps of their windows
// (GemmPlan::A::kLines).
//
// Row `y` reads tap `tap` at step * y + dilation * tap. Two taps whose dilation * tap differs by a multiple
// of the step read the same elements, a fixed number of rows apart. One copy of these elements in scratch, as
// whole lines of the rows inside y, serves both: a tile's rows for the later tap begin some lines after those
// for the earlier one, with the same spacing.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::kernels {

struct Lines {
  size_t row;  // index of y among the rows; the rows outside of it count images, each with its own lines
  struct Copy {
    int64_t tap;    // the first tap that reads it: line y of the copy is what row y reads there
    int64_t lines;  // lines after those of an image's rows, which later taps read
  };
  std::vector<Copy> copies;  // fewer than taps
  struct Tap {
    size_t copy;
    int64_t shift;  // in lines
  };
  std::vector<Tap> taps;
};

// `tap`: a reduced dim. Returns nothing if no two taps share elements.
std::optional<Lines> match_lines(const loop::Access& access, const std::vector<loop::Dim>& rows,
                                 const loop::Dim& tap, const sym::Facts& facts);

}  // namespace stridec::kernels

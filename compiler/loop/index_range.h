// The range of an index expression over all points of a nest.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

struct IndexRange {
  sym::Expr least, most;  // free of index variables
};
// Nothing if some dim moves the expression by a step that is not a constant or is negative.
std::optional<IndexRange> range_of(sym::Expr e, const std::vector<Dim>& dims);

}  // namespace stridec::loop

// The range of an index expression over all points of a nest.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

struct IndexRange {
  sym::Expr least, most;  // free of index variables
};
// Nothing if the expression is not linear in some dim, or its coefficient is negative or not a constant.
std::optional<IndexRange> range_of(sym::Expr e, const std::vector<Dim>& dims);

}  // namespace stridec::loop

// Where an index expression lies over all points of a nest.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

struct IndexRange {
  sym::Expr least, most;  // without index variables
};
// Nothing where a dim moves it by a step that is no constant, or backwards.
std::optional<IndexRange> range_of(sym::Expr e, const std::vector<Dim>& dims);

}  // namespace stridec::loop

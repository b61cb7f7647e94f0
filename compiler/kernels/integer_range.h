// Range analysis for integers of a nest, from their types and from constants.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::kernels {

struct Range {
  int64_t low, high;
  bool operator==(const Range&) const = default;
};
using Ranges = std::map<loop::ValueId, Range>;

// Returns the range of every value that the statements define; values that are not integers or may exceed 32
// bits have no entry. With `program`, elements of weights computed at compile time have the range of the
// values stored there.
Ranges integer_ranges(const loop::Nest& nest, const std::vector<const loop::Stmt*>& statements,
                      const loop::Program* program = nullptr);

}  // namespace stridec::kernels

// What is known of integers that a nest computes, from the types and constants that they come from.
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

// The least and the largest value of what the statements define; nothing of values that are no integers or may lie
// outside 32 bits. With `program`, elements of a weight that is made at compile time have the range of what is stored
// there.
Ranges integer_ranges(const loop::Nest& nest, const std::vector<const loop::Stmt*>& statements,
                      const loop::Program* program = nullptr);

}  // namespace stridec::kernels

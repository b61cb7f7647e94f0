// The length of index expressions, which bounds how far views and fusion compose them: a composed index may
// repeat an operand, so that its length doubles with every step, and with it the time to compile and the work
// of each element. Beyond the bound, the tensor is stored.
#pragma once

#include <cstdint>

#include "compiler/loop/program.h"
#include "compiler/loop/view.h"

namespace stridec::loop {

// Most terms of the indices and the mask of a view. Indices of common models have up to 50, those of a
// cache addressed by symbols up to 300.
inline constexpr uint64_t kLongestIndex = 320;

// Terms of the indices and the mask, written out.
uint64_t index_length(const View& view);

// The longest expressions of any statement, together for each: written out, and with common parts once.
struct IndexLength {
  uint64_t terms = 0, nodes = 0;
};
IndexLength longest_index(const Nest& nest);

}  // namespace stridec::loop

// The fixed text of the attention backward kernel for Hopper (flash_backward.h).
#pragma once

#include <cstdint>
#include <string>

#include "compiler/base/dtype.h"

namespace stridec::codegen::cuda {

// Sizes that the text and its launch share. `depth`: the head size, 64 or 128.
struct BackwardSizes {
  int64_t depth;
  int rows() const { return depth == 64 ? 128 : 64; }  // queries per step
  static constexpr int keys = 128;                     // per tile, 64 per consumer warp group
  static constexpr int threads = 384;
  int64_t shared_bytes() const;
};

// What the three launches share: `struct Backward`, and which tiles of rows see which tiles of keys.
std::string flash_backward_sizes(const BackwardSizes& sizes, DType dtype, bool causal);

// attention_backward(a, ..., locate, load, store), the whole main launch; follows flash_backward_sizes().
// locate(head) gives the place of a head, for the other two: load(factor, to, bar, row, place) copies a
// tile (0: q, 1: the gradient of o, 2: k, 3: v), and store(result, place, key, column, x, y) stores two
// neighbouring elements of a result (0: dK, 1: dV).
std::string flash_backward_products(const BackwardSizes& sizes, DType dtype);

}  // namespace stridec::codegen::cuda

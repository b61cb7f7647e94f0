// The fixed text of the attention backward kernel for Hopper (flash_backward_tiles.h).
#pragma once

#include <cstdint>
#include <string>

#include "compiler/base/dtype.h"

namespace stridec::codegen::cuda {

// Sizes that the text and its launch share. `depth`: the head size, 64 or 128.
struct BackwardSizes {
  int64_t depth;
  // Whether a step issues the product for dQ of the step before, so that the warp groups need not meet.
  // That takes a second slot for dS, for which only the smaller head size leaves shared memory.
  bool late() const { return depth == 64; }
  int rows() const { return late() ? 128 : 64; }  // queries per step
  int query_slots() const { return late() ? 2 : 3; }
  int score_slots() const { return late() ? 2 : 1; }
  int barriers() const { return 15 + 2 * query_slots(); }
  static constexpr int keys = 128;  // per tile, 64 per consumer warp group
  static constexpr int threads = 384;
  int64_t shared_bytes() const;
};

// What the three launches share: `struct Backward`, and which tiles of rows see which tiles of keys.
std::string flash_backward_sizes(const BackwardSizes& sizes, DType dtype, bool causal);

// attention_backward(a, ..., locate, load, out), the whole main launch; follows flash_backward_sizes().
// locate(head) gives the place of a head, load(factor, to, bar, row, place) copies a tile (0: q, 1: the
// gradient of o, 2: k, 3: v), and `out` is an Output (backward_machine()) of dK and dV.
std::string flash_backward_products(const BackwardSizes& sizes, DType dtype);

}  // namespace stridec::codegen::cuda

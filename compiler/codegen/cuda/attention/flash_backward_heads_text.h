// The fixed text of attention's backward kernel for few keys (flash_backward_heads.h).
#pragma once

#include <cstdint>
#include <string>

#include "compiler/base/dtype.h"

namespace stridec::codegen::cuda {

// Sizes that the text and its launch share. `depth`: the head size, 64 or 128.
struct BackwardHeadSizes {
  int64_t depth;
  int key_tiles;  // of 64 keys: all of a head
  // The most tiles whose sums of dK and dV fit into the registers.
  static constexpr int most_key_tiles(int64_t depth) { return depth == 64 ? 4 : 2; }
  static constexpr int rows = 64;                                // queries per tile
  int groups() const { return key_tiles == 4 ? 2 : key_tiles; }  // warp groups that multiply
  int tiles() const { return key_tiles / groups(); }             // of keys, per group
  int keys() const { return 64 * key_tiles; }                    // of a head, padded
  int part() const { return key_tiles > 2 ? 32 : 64; }  // queries whose scores a thread holds at once
  int blocks_sm() const { return groups() == 1 && depth == 64 ? 2 : 1; }
  int threads() const { return 128 * (groups() + 1); }
  int key_slots() const { return depth == 64 ? 2 : 1; }
  int query_slots() const { return key_tiles > 2 || blocks_sm() > 1 ? 2 : 3; }
  static constexpr int score_slots() { return 2; }
  // Registers per thread: at launch, and then of a group that multiplies and of the one that loads, which
  // hands some of its own over.
  int launched_registers() const;
  int worker_registers() const;
  static constexpr int loader_registers() { return 24; }
  int barriers() const { return 2 * (key_slots() + query_slots() + score_slots()); }
  int64_t shared_bytes() const;
};

// What both launches share: `struct Backward`.
std::string backward_head_sizes(const BackwardHeadSizes& sizes, DType dtype, bool causal);

// attention_backward(a, shared, bars, locate, load, out), the whole main launch; follows
// backward_head_sizes(). locate(head) gives the place of a head, load(factor, to, bar, row, place) copies a
// tile (0: q, 1: the gradient of o, 2: k, 3: v), and `out` is an Output of dK, dV and dQ.
std::string backward_head_products(const BackwardHeadSizes& sizes, DType dtype);

}  // namespace stridec::codegen::cuda

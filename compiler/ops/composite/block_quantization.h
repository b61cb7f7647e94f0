// Weights of a few bits with one scale per block of consecutive elements.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// x [..., k] times the transposed weights, which are packed as [n, blocks, bytes]: n rows of k values of 2, 4
// or 8 bits, low bits first, in blocks of `block`. The result is [..., n] in x's dtype; sums are f32.
struct BlockWeights {
  Term packed, scales;        // scales: n * blocks numbers
  std::optional<Term> zeros;  // floats, n * blocks; or packed like the weights, rows padded to whole bytes;
                              // none: the middle of the range
  std::optional<Term> block_of_column;  // the block of each of k columns; none: consecutive blocks
  int64_t n = 0, k = 0, bits = 4, block = 32;
};
// `bytes`: x may be rounded to 8 bits per block, as onnxruntime does with accuracy_level 4, if it is f32 and
// blocks are whole and consecutive.
Term block_matmul(Term x, const BlockWeights& weights, std::optional<Term> bias, bool bytes);

// Gathers rows of a table of integers, dequantised to the scales' dtype. Blocks of `block` elements along
// `blocks_dim` share a scale and a zero point. Dims are those of the unpacked table.
struct BlockTable {
  Term values, scales;        // values: integers, or bytes that pack several in the last dim
  std::optional<Term> zeros;  // packed like the values; none: 0, or the middle of the range of packed ones
  int64_t bits = 4, block = 128, rows_dim = 0, blocks_dim = 1;
};
Term gather_blocks(const BlockTable& table, Term indices);

// bitsandbytes' codes of 4 bits, two per byte, high bits first: a table look-up times the scale of the block
// of consecutive weights. The result is f32 [n, k]. Dettmers et al. 2023 (QLoRA), arXiv:2305.14314.
enum class FourBitCode { kFp4, kNf4 };
Term four_bit_weights(Term packed, Term scales, FourBitCode code, int64_t n, int64_t k, int64_t block);

}  // namespace stridec::ops

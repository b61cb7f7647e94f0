// Packed weights: layout and matching of sub-byte and 8-bit weights that GPU GEMMs read directly. A weight is
// (number - zero point) * scale, where the number is the stored integer; scales and zero points are shared by
// blocks of k. Numbers are stored in the fragment order of the tensor cores:
//
//   words   i32 [columns / panel][k / chunk][tiles][32 lanes][4]  16 bytes per lane, 16 columns per warp
//   scales      [columns / panel][group][tiles][8][blocks][2]     columns g and g + 8 adjacent, by block
//   zeros   u8  the same
//
// Lane 4 * g + t has columns g and g + 8 of its tile and, in every span of k, the run that begins at t * run,
// so that its loads of the other factor are contiguous too. With `fragments` it has 2 t, 2 t + 1, 2 t + 8 and
// 2 t + 9 of every 16 k, the instructions' own order, which suits rows in shared memory. A panel is then 64
// columns, the words of 128 k of a panel are contiguous, and k is padded to a multiple of 128, so that a ring
// stage takes one or two copies. Neighbouring k are 16 bits apart (8-bit numbers: in adjacent bytes), so that
// one `and` extracts two of them and an `or` with an exponent makes them 16-bit floats. Sources: PTX ISA,
// "mma.m16n8k16" and "wgmma.m64nNk16" for the fragments; Kim et al., "Who Says Elephants Can't Run" (2022)
// for the exponent trick.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/block_quantized.h"

namespace stridec::kernels {

// Kernel names: a GEMM by packed weights, and a nest that dequantises packed weights to floats.
inline constexpr std::string_view kPackedProduct = "words.product", kPackedUnpack = "words.unpack";

constexpr int64_t kPackedDepth = 128;  // with `fragments`, words are contiguous per so many k

struct PackedLayout {
  int bits = 4;                    // 2, 4 or 8
  int64_t columns = 0, depth = 0;  // of the matrix
  int64_t step = 0;                // k per scale and zero point; 0: all
  bool fragments = false;

  int64_t chunk() const { return 256 / bits; }
  int64_t products() const { return chunk() / 16; }  // MMA steps of 16 k per chunk
  int64_t span() const { return fragments || step % 32 ? 16 : 32; }
  int64_t run() const { return fragments ? 2 : span() / 4; }
  int64_t tiles() const { return (columns + 15) / 16; }
  // Tiles of 16 columns per panel.
  int64_t together() const { return fragments ? 4 : 1; }
  int64_t panels() const { return (columns + 16 * together() - 1) / (16 * together()); }
  int64_t chunks() const {
    const int64_t whole = fragments ? kPackedDepth : chunk();
    return (depth + whole - 1) / whole * (whole / chunk());
  }
  int64_t blocks() const { return step > 0 && step < chunk() ? chunk() / step : 1; }
  int64_t group() const { return step == 0 ? 0 : std::max(step, chunk()); }  // k per group of scales; 0: all
  int64_t groups() const { return step == 0 ? 1 : (chunks() * chunk() + group() - 1) / group(); }
  bool fits() const { return step == 0 || (step % 16 == 0 && (step % chunk() == 0 || chunk() % step == 0)); }
};

// A configuration of Hopper's warp groups for GEMMs of at most `most` rows. A block computes tiles of `rows`
// by 64 * `panels` columns; a stage of its ring has 128 k. `groups` warp groups share the stages; `split`
// blocks of a cluster split the depth.
struct PackedTile {
  int64_t most;
  int rows, panels, groups, stages = 0;
  int64_t split = 1;
};
// fits_groups(): whether warp groups support this layout, in fragment order. packed_tiles(): their tiles on
// this GPU, fewest rows first; none if the GPU has no such instructions.
bool fits_groups(const PackedLayout& layout, DType element);
std::vector<PackedTile> packed_tiles(const PackedLayout& layout, DType element, const GpuTarget& target);

// Text form: "words.product: bits 4; step 32; fragments 1; zero 8". `zero` is the zero point if it is a
// constant.
loop::Schedule to_schedule(std::string_view kernel, const PackedLayout& layout, int64_t zero);
bool is_packed_weights(const loop::Schedule& schedule);
// The layout in such a schedule, for a matrix with these numbers of columns and k.
PackedLayout to_layout(const loop::Schedule& schedule, int64_t columns, int64_t depth);
int64_t zero_of(const loop::Schedule& schedule);

// Indices and bit position of the number, and indices of the scale, for a column and k.
std::vector<sym::Expr> word_of(const PackedLayout& layout, sym::Expr column, sym::Expr k);
sym::Expr bit_of(const PackedLayout& layout, sym::Expr column, sym::Expr k);
std::vector<sym::Expr> scale_of(const PackedLayout& layout, sym::Expr column, sym::Expr k);
std::vector<sym::Expr> packed_shape(const PackedLayout& layout), scales_shape(const PackedLayout& layout);
// The inverse: column and k of the number that begins at `bit` of a word, and of a scale.
struct Place {
  sym::Expr column, k;
};
Place number_at(const PackedLayout& layout, const std::vector<sym::Expr>& word, int bit);
Place scale_at(const PackedLayout& layout, const std::vector<sym::Expr>& scale);
// The bit positions at which the numbers of a word begin.
std::vector<int> bits_in_word(const PackedLayout& layout);

// The parts of a factor: (numbers - zero) * scale. Intermediate roundings of the result to a narrower float
// are ignored.
struct QuantizedFactor {
  PackedLayout layout;
  QuantizedPart numbers;
  std::optional<loop::ValueId> zero;  // an integer value
  int64_t constant = 0;               // the zero point if `zero` is empty
  std::optional<loop::ValueId> scale;
};
// Matches a contraction's factor that depends only on weights. Nothing if it has another form, or if sizes
// are unknown.
std::optional<QuantizedFactor> match_quantized_factor(const loop::Program& program, const loop::Nest& nest,
                                                      const Factor& factor,
                                                      const std::vector<loop::Dim>& columns,
                                                      const std::vector<loop::Dim>& k);

}  // namespace stridec::kernels

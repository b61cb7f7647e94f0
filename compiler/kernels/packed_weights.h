// Weights of few bits as GPU products read them: (number - zero point) * scale, where scales and zero points are the same
// for blocks of k. Numbers lie in the order in which tensor cores take them:
//
//   words   i32 [columns / panel][k / chunk][tiles][32 lanes][4]  a lane loads 16 bytes, a warp 16 columns of a chunk of k
//   scales      [columns / panel][group][tiles][8][blocks][2]     of column g and g + 8 next to each other, block by block
//   zeros   u8  the same
//
// Lane 4 * g + t has columns g and g + 8 of its tile and, of every span of k, the run from t * run on: what it loads of the
// other factor is contiguous too. `fragments`: of every 16 k it has 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, the instructions' own
// order, as rows in shared memory want it; a panel is 64 columns, whose words of 128 k are contiguous, and k is filled up to
// a multiple of 128, so that a stage of a ring is a copy or two. Pairs of neighbouring k are 16 bits apart (bytes of 8 bits:
// next to each other), so that one `and` takes them out as two 16-bit floats whose exponent an `or` adds. Source of the
// fragments: PTX ISA, "mma.m16n8k16" and "wgmma.m64nNk16"; of the exponent's trick: Kim et al., "Who Says Elephants Can't
// Run" (2022).
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/block_quantized.h"

namespace stridec::kernels {

// A sum of products with such a factor; what writes such numbers out as floats.
inline constexpr std::string_view kPackedProduct = "words.product", kPackedUnpack = "words.unpack";

constexpr int64_t kPackedDepth = 128;  // k that memory has words for in one go

struct PackedLayout {
  int bits = 4;                    // 2, 4 or 8
  int64_t columns = 0, depth = 0;  // of the matrix
  int64_t step = 0;                // k that share a scale and a zero point; 0: all
  bool fragments = false;

  int64_t chunk() const { return 256 / bits; }
  int64_t products() const { return chunk() / 16; }  // of 16 k each
  int64_t span() const { return fragments || step % 32 ? 16 : 32; }
  int64_t run() const { return fragments ? 2 : span() / 4; }
  int64_t tiles() const { return (columns + 15) / 16; }
  // Tiles of 16 columns whose chunks lie together, and as many columns.
  int64_t together() const { return fragments ? 4 : 1; }
  int64_t panels() const { return (columns + 16 * together() - 1) / (16 * together()); }
  int64_t chunks() const {
    const int64_t whole = fragments ? kPackedDepth : chunk();
    return (depth + whole - 1) / whole * (whole / chunk());
  }
  int64_t blocks() const { return step > 0 && step < chunk() ? chunk() / step : 1; }
  int64_t group() const { return step == 0 ? 0 : std::max(step, chunk()); }  // k of a group, 0: all
  int64_t groups() const { return step == 0 ? 1 : (chunks() * chunk() + group() - 1) / group(); }
  bool fits() const { return step == 0 || (step % 16 == 0 && (step % chunk() == 0 || chunk() % step == 0)); }
};

// How warp groups of Hopper do a product of at most so many rows: a block has tiles of `rows` by `panels` times 64 columns,
// a stage of its ring 128 k. `groups` warp groups share the stages, `split` blocks of a cluster the depth.
struct PackedTile {
  int64_t most;
  int rows, panels, groups, stages = 0;
  int64_t split = 1;
};
// Whether warp groups could take such words, in the order of fragments; where a GPU has them, their tiles, fewest rows first.
bool fits_groups(const PackedLayout& layout, DType element);
std::vector<PackedTile> packed_tiles(const PackedLayout& layout, DType element, const GpuTarget& target);

// Text form: "words.product: bits 4; step 32; fragments 1; zero 8", the zero point where it is no memory.
loop::Schedule to_schedule(std::string_view kernel, const PackedLayout& layout, int64_t zero);
bool is_packed_weights(const loop::Schedule& schedule);
// Of such a schedule, for a matrix of so many columns and k.
PackedLayout to_layout(const loop::Schedule& schedule, int64_t columns, int64_t depth);
int64_t zero_of(const loop::Schedule& schedule);

// Where a column's k lies.
std::vector<sym::Expr> word_of(const PackedLayout& layout, sym::Expr column, sym::Expr k);
sym::Expr bit_of(const PackedLayout& layout, sym::Expr column, sym::Expr k);
std::vector<sym::Expr> scale_of(const PackedLayout& layout, sym::Expr column, sym::Expr k);
std::vector<sym::Expr> packed_shape(const PackedLayout& layout), scales_shape(const PackedLayout& layout);
// And back: of the number in a word's bits from `bit` on; of a scale.
struct Place {
  sym::Expr column, k;
};
Place number_at(const PackedLayout& layout, const std::vector<sym::Expr>& word, int bit);
Place scale_at(const PackedLayout& layout, const std::vector<sym::Expr>& scale);
// The bits at which a word's numbers begin.
std::vector<int> bits_in_word(const PackedLayout& layout);

// A factor taken apart: (numbers - zero) * scale. Roundings of the whole to a narrower float on the way do not count.
struct FewBits {
  PackedLayout layout;
  QuantizedPart numbers;
  std::optional<loop::ValueId> zero;  // an integer
  int64_t constant = 0;               // where there is none
  std::optional<loop::ValueId> scale;
};
// Of a contraction's factor that weights alone give. Nothing where it has another form, or sizes are not known.
std::optional<FewBits> match_few_bits(const loop::Program& program, const loop::Nest& nest,
                                      const Factor& factor, const std::vector<loop::Dim>& columns,
                                      const std::vector<loop::Dim>& k);

}  // namespace stridec::kernels

// Matrix products and convolutions on a GPU: tiles, and what a schedule with one of them says.
//
// Text form, of a kernel of cuda_kernels.def, dims outer first:
//   batch %g ...     dims that both factors keep or neither has: one tile has one point of them
//   rows %n %y %x    dims of one factor alone, flattened
//   columns %o       dims of the other, flattened; the last is the one that stores are contiguous along
//   depth %r %s %c   reduced dims, flattened, in this order
//   merge %i %j ...  dims of one side that all accesses step through as one, named after the last; the other lines name
//                    what is left of the dims
//   split N          so many blocks share the depth of a tile: of a cluster, or the last to come adds up what they leave
//   below P KERNEL N [turned]   products of fewer than P elements have this kernel and split instead; turned: with rows
//                    and columns exchanged. Several times, P rising: the first that holds.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/contraction.h"

namespace stridec::kernels {

enum class MatrixFamily : uint8_t {
  kSimt,
  kMma,
  kWgmma,
  kWords
};  // kWords: packed_weights.h, no row of the table

struct MatrixKernel {
  std::string_view name;
  MatrixFamily family;
  int element_bytes;
  int rows, columns, depth;
  int warps_rows, warps_columns;
  int stages;
  int blocks_sm;
  bool turns = false;   // a tile is one warp group's, and the groups of a block take tiles in turns
  bool single = false;  // elements may come one by one: a thread has few enough of them
  int slices = 1;       // warps that share the depth of a step: more than one in tiles of few rows
  int held_steps =
      0;  // of the columns' factor, beside the ring instead of in it (norm_prologue.h): all of a block's

  bool is_wgmma() const { return family == MatrixFamily::kWgmma; }
  bool is_tensor() const { return family != MatrixFamily::kSimt; }
  bool is_sliced() const { return slices > 1; }
  int workers() const { return 32 * warps_rows * warps_columns * slices; }  // threads that multiply
  int loaders() const { return is_wgmma() ? 128 : workers(); }              // threads that load
  int threads() const { return workers() + (is_wgmma() ? loaders() : 0); }
  int tile_groups() const { return turns ? 1 : workers() / 128; }  // warp groups that share a tile
  int sums() const {
    return rows * columns / (32 * warps_rows * warps_columns / (turns ? 2 : 1));
  }  // of a thread
  // Columns of the sums that a warp group has in shared memory at a time.
  int chunk() const { return columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : columns; }
};

std::span<const MatrixKernel> matrix_kernels();
const MatrixKernel* find_matrix_kernel(std::string_view name);
// For the kernel's elements where they lie in memory in any way.
const MatrixKernel& general_kernel(const MatrixKernel& kernel);

struct MatrixPlan {
  const MatrixKernel* kernel = nullptr;
  std::vector<sym::Expr> batch, rows, columns, depth;
  std::vector<std::vector<sym::Expr>> merges;
  int64_t split = 1;
  struct Fewer {
    int64_t below;
    const MatrixKernel* kernel;
    int64_t split;
    bool turned;
  };
  std::vector<Fewer> fewer;
};
MatrixPlan plan_of(const MatrixPlan& plan, const MatrixPlan::Fewer& fewer);

bool is_matrix(const loop::Schedule& schedule);
loop::Schedule to_schedule(const MatrixPlan& plan);
MatrixPlan to_matrix_plan(const loop::Schedule& schedule);  // of an is_matrix() schedule

// What a factor's elements are in shared memory: a type that tensor cores multiply where that holds every value of the
// factor, else the dtype of the product.
DType element_of(const loop::Nest& nest, const Contraction& contraction, const Factor& factor);
// Of both, where tensor cores of some GPU multiply them exactly: 16-bit floats or tf32 of one kind, bytes, fp8.
std::optional<std::array<DType, 2>> tensor_dtypes(const loop::Nest& nest, const Contraction& contraction);
// Whether this GPU has instructions for them.
bool multiplies(const GpuTarget& target, const std::array<DType, 2>& dtypes);
// Hopper's warp groups keep 14 bits of a sum of fp8 products: it is added up in f32 after every step, beside which a thread
// needs registers for the step's own sums.
bool adds_steps(const MatrixKernel& kernel, DType element);
bool has_room(const MatrixKernel& kernel, DType element);
// As PTX calls a type of factors, and that of their sums.
std::string_view ptx_type(DType dtype);
// Instructions take lines along the depth alone, where elements have not 16 bits.
inline bool wants_depth(const MatrixKernel& kernel) {
  return (kernel.family == MatrixFamily::kMma || kernel.is_wgmma()) && kernel.element_bytes != 2;
}

// A factor's tile lies in shared memory along the depth if the factor is contiguous that way, or neither way; else
// along its rows.
bool along_depth(const loop::Program& program, const Factor& factor, const std::vector<loop::Dim>& rows,
                 const std::vector<loop::Dim>& depth, const sym::Facts& facts);

// The load that the factor is, through casts that lose nothing, of elements of this type; masked off it gives zero.
const loop::Load* load_of(const loop::Program& program, const Factor& factor, DType element);
// The condition under which `lanes` elements of the access lie next to each other, on a multiple of `lanes` elements
// from the buffer's start, wherever the dim `unit` starts at a multiple of `lanes`. Nothing where no sizes make it so.
// `dims`: all that the access may depend on. `ragged`: there may be fewer than `lanes` at the end of the unit.
std::optional<sym::Expr> contiguous(const loop::Program& program, const std::vector<loop::Dim>& dims,
                                    const loop::Access& access, const loop::Dim& unit, int64_t lanes,
                                    bool ragged, const sym::Facts& facts);
// Whether there are sizes with which tiles of elements of this type take the factor from memory 16 bytes at a time.
// `facts`: those inside the nest and its reduction.
bool comes_in_pieces(const loop::Program& program, const loop::Nest& nest, const Contraction& contraction,
                     const Factor& factor, const std::vector<loop::Dim>& rows,
                     const std::vector<loop::Dim>& depth, DType element, const sym::Facts& facts);

// Bytes of dynamic shared memory that a block needs, at most.
int64_t shared_bytes(const MatrixKernel& kernel, int64_t split);
// Where the sums of a block of warp groups lie in it that other blocks of the cluster give it: behind the ring, or in its
// place where there is no room (0), when all of them are done with theirs.
int64_t given_at(const MatrixKernel& kernel);
// Elements between lines of the tile of sums in shared memory, and between lines of simt tiles of factors.
constexpr int kSumPadding = 4, kSimtPadding = 4;

}  // namespace stridec::kernels

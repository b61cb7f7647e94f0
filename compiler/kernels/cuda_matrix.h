// GEMMs and convolutions on a GPU: tiles, and the schedules that choose them.
//
// Text form, for a kernel of cuda_kernels.def, dims outer first:
//   batch %g ...     dims that both factors or neither depend on: a tile has one point of them
//   rows %n %y %x    dims of one factor alone, flattened
//   columns %o       dims of the other factor alone, flattened; stores are contiguous along the last one
//   depth %r %s %c   reduced dims, flattened, in this order
//   merge %i %j ...  dims of one side that all accesses step through as one dim, named after the last; the
//                    other lines name the dims after these merges
//   split N          split-K: N blocks share the depth of a tile, either as a cluster, or through memory,
//                    where the last block to finish adds the partial sums
//   below P KERNEL N [turned]   runs with fewer than P output elements use this kernel and split instead;
//                    turned: it computes the transposed result. May occur several times, with increasing P;
//                    the first one that holds applies.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/contraction.h"

namespace stridec::kernels {

// Rows of cuda_kernels.def have one of the first three. kWords: GEMMs by packed weights (packed_weights.h).
enum class MatrixFamily : uint8_t { kSimt, kMma, kWgmma, kWords };

struct MatrixKernel {
  std::string_view name;
  MatrixFamily family;
  int element_bytes;
  int rows, columns, depth;
  int warps_rows, warps_columns;
  int stages;
  int blocks_sm;
  bool turns = false;   // warp groups of a block alternate over tiles, one group per tile
  bool single = false;  // single-element loads are allowed, since a thread has few elements
  int slices = 1;       // warps that split the depth of a step; more than 1 only in tiles of few rows
  // Steps of the columns' factor that are kept next to the ring, not in it (norm_prologue.h): all steps of a
  // block.
  int held_steps = 0;

  bool is_wgmma() const { return family == MatrixFamily::kWgmma; }
  bool is_tensor() const { return family != MatrixFamily::kSimt; }
  bool is_sliced() const { return slices > 1; }
  int workers() const { return 32 * warps_rows * warps_columns * slices; }  // threads that multiply
  int loaders() const { return is_wgmma() ? 128 : workers(); }              // threads that load
  int threads() const { return workers() + (is_wgmma() ? loaders() : 0); }
  int tile_groups() const { return turns ? 1 : workers() / 128; }  // warp groups that share a tile
  // Accumulators per thread.
  int sums() const { return rows * columns / (32 * warps_rows * warps_columns / (turns ? 2 : 1)); }
  // Columns of the sums that a warp group holds in shared memory at a time.
  int chunk() const { return columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : columns; }
};

std::span<const MatrixKernel> matrix_kernels();
const MatrixKernel* find_matrix_kernel(std::string_view name);
// Returns a kernel for the same element size that allows any memory layout of the factors.
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
MatrixPlan to_matrix_plan(const loop::Schedule& schedule);  // requires is_matrix(schedule)

// The element type of a factor in shared memory: a type that tensor cores multiply, if it holds every value
// of the factor; otherwise the dtype of the contraction.
DType element_of(const loop::Nest& nest, const Contraction& contraction, const Factor& factor);
// Returns the types of both factors if tensor cores of some GPU multiply them exactly: 16-bit floats of one
// kind, tf32, bytes or fp8.
std::optional<std::array<DType, 2>> tensor_dtypes(const loop::Nest& nest, const Contraction& contraction);
// Whether this GPU has instructions for these types.
bool multiplies(const GpuTarget& target, const std::array<DType, 2>& dtypes);
// Whether the sums of each step are added to f32 totals outside the tensor cores: wgmma keeps only 14 bits of
// a sum of fp8 products. Each thread then also holds the step's own sums; has_room() says whether its
// registers suffice.
bool adds_steps(const MatrixKernel& kernel, DType element);
bool has_room(const MatrixKernel& kernel, DType element);
// PTX's name of an element type or of its accumulator type.
std::string_view ptx_type(DType dtype);
// Whether lines of the tiles have to run along the depth, as instructions require for elements of other than
// 16 bits.
inline bool wants_depth(const MatrixKernel& kernel) {
  return (kernel.family == MatrixFamily::kMma || kernel.is_wgmma()) && kernel.element_bytes != 2;
}

// Whether the factor's tile in shared memory runs along the depth: if the factor is contiguous along the
// depth, or along neither side. Otherwise it runs along the rows.
bool along_depth(const loop::Program& program, const Factor& factor, const std::vector<loop::Dim>& rows,
                 const std::vector<loop::Dim>& depth, const sym::Facts& facts);

// Returns the factor's only load if its elements have this type, at most one lossless cast follows, and
// masked elements are zero.
const loop::Load* load_of(const loop::Program& program, const Factor& factor, DType element);
// Returns the condition under which `lanes` elements of the access are contiguous and begin at a multiple of
// `lanes` elements from the buffer's start, for every multiple of `lanes` along the dim `unit`. Nothing if no
// sizes satisfy it. `dims`: all dims that the access may depend on. `ragged`: the last piece of the unit may
// be shorter.
std::optional<sym::Expr> contiguous(const loop::Program& program, const std::vector<loop::Dim>& dims,
                                    const loop::Access& access, const loop::Dim& unit, int64_t lanes,
                                    bool ragged, const sym::Facts& facts);
// Whether, for some sizes, tiles with elements of this type load the factor 16 bytes at a time. `dims`: those
// of the nest and of its reduction, in which `facts` hold.
bool loads_16_bytes(const loop::Program& program, const std::vector<loop::Dim>& dims, const Factor& factor,
                    const std::vector<loop::Dim>& rows, const std::vector<loop::Dim>& depth, DType element,
                    const sym::Facts& facts);

// Upper bound on the bytes of dynamic shared memory of a block.
int64_t shared_bytes(const MatrixKernel& kernel, int64_t split);
// Byte offset in shared memory of the partial sums that a block of warp groups receives from the other blocks
// of its cluster. They follow the ring, or, if there is no room, reuse it (0) once all blocks are done with
// theirs.
int64_t given_at(const MatrixKernel& kernel);
// Padding in elements per line: of the tile of sums in shared memory, and of the factor tiles of simt
// kernels.
constexpr int kSumPadding = 4, kSimtPadding = 4;

}  // namespace stridec::kernels

// Micro-kernels for GEMMs and convolutions on the CPU: a register tile of results, summed over runs of k at
// arbitrary addresses ("batch-reduce" GEMM, Georganas et al. 2020, arXiv 1906.06440).
//
// A micro-kernel computes, for i < rows and j < columns,
//
//   tile[i][j] (+)= sum over s < segments, k < run of  a_rows[s * kRows + i][k] * b[s * run + k][j]
//
// Each pointer in a_rows points to `run` consecutive elements; consecutive rows of b are `b_stride` elements
// apart. Kernels with narrow operands multiply a `group` of consecutive k at once, four bytes of a. Then run
// is a multiple of the group, and b has the layout [k / group][column][group] with b_stride elements from
// group to group. A GEMM has one segment. A convolution has one segment per tap, and a row of zeros where a
// tap is in the padding. The kernel stores the tile to memory (one or two cache lines per accumulator, in
// L1), so that one micro-kernel serves every epilogue and is built once; measurements show that the next
// tile's FMAs hide the stores. Per kGemmStep of k it prefetches `lines` cache lines, starting at `ahead`: if
// the next panel of b comes from memory, the first tile to use it would otherwise wait for it.
//
// The sum of a call is added to the tile at its end. Callers split long sums, so that rounding errors do not
// grow with k.
//
// Deep kernels vectorise along k: a group fills a vector, an accumulator belongs to a single column, and its
// lanes are summed after the last k.
//
// Kernels for tile registers (Intel AMX) multiply 16 rows by 16 columns over 64 bytes of a row at once.
// There, run is a multiple of these 64 bytes, rows of a are read to the end of the run, and the rows of a
// tile are equally spaced. A thread's tile registers have the shape set by the last call of
// gemm_shape_symbol()'s function.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/base/dtype.h"
#include "compiler/base/target.h"

namespace stridec::kernels {

constexpr int kGemmStep = 8;      // k, or groups of k, between prefetches
constexpr int kGemmPause = 2;     // k, or groups of k, between calls of rest() (gemm_template())
constexpr int kTileRows = 16;     // rows of a tile register
constexpr int kMostOfPairs = 64;  // the largest |b| for GemmKernel::pairs: 2 * 255 * 64 < 2^15
constexpr int kTileBytes = 64;    // bytes per row of a tile register

struct GemmKernel {
  std::string_view name;  // "gemm.f32.8x48"
  DType a, b;             // of the operands
  DType dtype;            // of the accumulators
  int vector_bytes;
  int rows;     // most rows of a tile; kernels for fewer rows are instantiated from the same template
  int vectors;  // vectors of columns per tile; deep: columns
  bool CpuTarget::* instruction = nullptr;  // required CPU feature
  bool tiles = false;                       // uses tile registers
  bool deep = false;                        // vectorises along k
  // Adds pairs of products in 16 bits; kMostOfPairs prevents overflow. For CPUs without vpdpbusd.
  bool pairs = false;

  int lanes() const { return vector_bytes / byte_size(dtype); }
  int columns() const { return deep ? vectors : vectors * lanes(); }
  int line() const { return deep ? lanes() : columns(); }  // elements per row of a tile
  int line_vectors() const { return line() / lanes(); }
  int group() const { return deep ? vector_bytes / byte_size(a) : byte_size(dtype) / byte_size(a); }
  bool widens_b() const { return byte_size(b) < byte_size(a); }
  // Whether a separate instruction adds the products to the accumulators.
  bool adds_apart(const CpuTarget& target) const { return pairs || (a == DType::kI16 && !target.vnni); }
  // The run is a multiple of this many k.
  int step() const { return tiles ? kTileBytes / byte_size(a) : group(); }
  bool runs_on(const CpuTarget& target) const {
    return vector_bytes == target.vector_bytes && (!instruction || target.*instruction) &&
           !(pairs && target.vnni);
  }
};

// The rows of kernels.def.
std::span<const GemmKernel> gemm_kernels();
const GemmKernel* find_gemm_kernel(std::string_view name);

// The name of the kernel's function in gemm_text(), unique per kernel and target.
std::string gemm_symbol(const GemmKernel& kernel, const CpuTarget& target);

// The declaration of that function, for callers:
//   extern "C" void SYMBOL(int64_t rows, int64_t segments, int64_t run, const A* const* a_rows, const B* b,
//                          int64_t b_stride, T* tile, int64_t accumulate, const char* ahead, int64_t lines);
// with A, B and T as in gemm_type(). 1 <= rows <= kernel.rows. a_rows has kernel.rows entries per segment, of
// which the first `rows` are read. tile is aligned to vector_bytes and has kernel.line() elements per row.
std::string gemm_declaration(const GemmKernel& kernel, const CpuTarget& target);
std::string_view gemm_type(DType dtype);

// For kernels on tile registers, the name of the function that configures the calling thread's tile registers
// for tiles of `rows` rows, or releases them if rows == 0:
//   extern "C" void SHAPE_SYMBOL(int64_t rows);
std::string gemm_shape_symbol(const GemmKernel& kernel, const CpuTarget& target);

// The kernel's multiply-accumulate instruction as the macro PRODUCT(sum, row, column). It is an expression
// over vectors `vec` of sums and factors; with groups, factors are `words`. For tile registers it is a
// statement over register numbers.
std::string product_text(const GemmKernel& kernel, const CpuTarget& target);

// The micro-kernel as a template, for callers that interleave other work:
//   template <int R, class Rest>
//   long tile_of(SYMBOL's parameters except `rows`, which is R, long left, Rest rest)
// It calls rest(0), rest(1), ... up to rest(left - 1) between its steps of k while there are steps left, and
// returns the number of calls made. Vectors in rest() share the register file with the tile's accumulators.
// Not for tile registers.
std::string gemm_template(const GemmKernel& kernel, const CpuTarget& target);

// The translation unit that defines the kernel's functions.
std::string gemm_text(const GemmKernel& kernel, const CpuTarget& target);

}  // namespace stridec::kernels

// The micro-kernels of matrix products and convolutions on the CPU: a tile of results in registers, summed
// over runs of k that lie anywhere in memory ("batch-reduce" GEMM, Georganas et al. 2020, arXiv 1906.06440).
//
// A micro-kernel computes, for i < rows and j < columns,
//
//   tile[i][j] (+)= sum over s < segments, k < run of  a_rows[s * kRows + i][k] * b[s * run + k][j]
//
// where each a_rows pointer leads to `run` consecutive elements and consecutive rows of b are `b_stride`
// elements apart. Kernels of narrow operands multiply a `group` of consecutive k at once, four bytes of a: run is a
// multiple of it, and b has [k / group][column][group] with b_stride elements from group to group. A matrix product has
// one segment; a convolution has one per tap, with a row of zeros where a tap is in the padding. The tile goes to memory
// (a cache line or two per accumulator, in L1) so that one micro-kernel serves every epilogue and is built once; measured,
// the stores disappear behind the next tile's multiply-adds. While it runs it asks for `lines` cache lines from `ahead` on
// in every kGemmStep of k: where the next panel of b comes from memory, the first tile to use it would wait for it.
//
// Deep kernels hold vectors of k: their groups are as long as the vectors, columns come one by one, and what the lanes of an
// accumulator have summed is added up behind the last k.
//
// Kernels of tile registers (Intel AMX) multiply 16 rows by 16 columns over 64 bytes of a row at once: run is a multiple
// of that step, a row of a is read to its end, and the rows of a tile lie at one distance from each other. A thread's
// tile registers have the shape that gemm_shape_symbol() gave them last.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/base/dtype.h"
#include "compiler/base/target.h"

namespace stridec::kernels {

constexpr int kGemmStep = 8;    // k, or groups of it, between prefetches
constexpr int kGemmPause = 2;   // and between two pieces of other work
constexpr int kTileRows = 16;   // of a tile register
constexpr int kTileBytes = 64;  // of such a row

struct GemmKernel {
  std::string_view name;  // "gemm.f32.8x48"
  DType a, b;             // of the operands
  DType dtype;            // of the accumulators
  int vector_bytes;
  int rows;                                // most rows of a tile; fewer are instantiations of the same text
  int vectors;                             // of a tile's columns; deep: columns
  bool CpuTarget::*instruction = nullptr;  // that it cannot do without
  bool tiles = false;                      // on tile registers
  bool deep = false;                       // vectors of k

  int lanes() const { return vector_bytes / byte_size(dtype); }
  int columns() const { return deep ? vectors : vectors * lanes(); }
  int line() const { return deep ? lanes() : columns(); }  // elements of a tile from row to row
  int line_vectors() const { return line() / lanes(); }
  int group() const { return deep ? vector_bytes / byte_size(a) : byte_size(dtype) / byte_size(a); }
  int step() const { return tiles ? kTileBytes / byte_size(a) : group(); }  // of k, that run is a multiple of
  bool runs_on(const CpuTarget& target) const {
    return vector_bytes == target.vector_bytes && (!instruction || target.*instruction);
  }
};

// The rows of kernels.def.
std::span<const GemmKernel> gemm_kernels();
const GemmKernel* find_gemm_kernel(std::string_view name);

// The function's name in the text below, unique per kernel and target.
std::string gemm_symbol(const GemmKernel& kernel, const CpuTarget& target);

// Its declaration, for callers:
//   extern "C" void SYMBOL(int64_t rows, int64_t segments, int64_t run, const A* const* a_rows, const B* b,
//                          int64_t b_stride, T* tile, int64_t accumulate, const char* ahead, int64_t lines);
// with A, B and T of gemm_type().
// 1 <= rows <= kernel.rows; a_rows has kernel.rows entries per segment, of which the first `rows` are read;
// tile is aligned to vector_bytes and has kernel.line() elements per row.
std::string gemm_declaration(const GemmKernel& kernel, const CpuTarget& target);
std::string_view gemm_type(DType dtype);

// Of kernels of tile registers, the function that shapes those of the calling thread for tiles of `rows` rows, or lets
// go of them, rows == 0:
//   extern "C" void SHAPE_SYMBOL(int64_t rows);
std::string gemm_shape_symbol(const GemmKernel& kernel, const CpuTarget& target);

// The instruction that a micro-kernel is made of, as the macro PRODUCT(sum, row, column): an expression over vectors `vec` of
// sums and of factors, which are `words` where there are groups; of tile registers a statement over their numbers.
std::string product_text(const GemmKernel& kernel, const CpuTarget& target);

// The micro-kernel as a template, for the text of a caller who has other work for the processor meanwhile:
//   template <int R, class Rest> long tile_of(SYMBOL's parameters but `rows`, which is R, long left, Rest rest)
// calls rest(0), rest(1), ... up to rest(left - 1) between its steps of k, as long as there are such, and returns how many
// calls it made. Vectors that rest() works on share the register file with the tile's sums. Not of tile registers.
std::string gemm_template(const GemmKernel& kernel, const CpuTarget& target);

// The translation unit that defines them.
std::string gemm_text(const GemmKernel& kernel, const CpuTarget& target);

}  // namespace stridec::kernels

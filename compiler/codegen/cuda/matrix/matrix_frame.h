// What the parts of the GEMM emitter share: the parts of the contraction, and the names of generated
// variables.
//
// Generated variables, in order of appearance: rank (of the block in its cluster), batch, first_row,
// first_column (of the tile), thread, steps, shared; per side a_base, a_inside, a_0.. (indices); step, slot
// of the ring; sums.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/body.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/kernels/norm_prologue.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {

using Dims = std::vector<loop::Dim>;

struct MatrixFrame {
  // `narrow`: flattened indices of rows, columns and depth fit in 31 bits. `plan` selects the dims.
  MatrixFrame(const loop::Program& program, const loop::Nest& nest, const kernels::MatrixKernel& kernel,
              kernels::MatrixPlan plan, bool narrow);

  const loop::Program& program;
  loop::Nest nest;  // the reduced dims are added to the parallel ones, so that facts know them
  const kernels::MatrixKernel& kernel;
  const bool narrow;
  KernelText text;
  kernels::MatrixPlan plan;
  kernels::Contraction contraction;
  const kernels::Factor* a;  // the factor with the rows
  const kernels::Factor* b;  // the factor with the columns
  Dims batch, rows, columns, depth;
  // The prologue that computes whole rows of the columns' factor (kernels/norm_prologue.h); `nest` is then
  // the GEMM after it.
  std::optional<kernels::NormPrologue> prologue;
  // For a dual GEMM (kernels/dual_gemm.h) `nest` is the combined GEMM, and each result has two sums:
  // kPairBlock of the first alternate with kPairBlock of the second, along the rows or the columns.
  std::optional<kernels::DualGemm> pair;
  bool pairs(const Dims& dims) const { return pair && !dims.empty() && dims.back().var == pair->dim; }
  Dims results(const Dims& dims) const;  // the rows or columns of results
  sym::Facts facts;
  DType a_element, b_element;  // element types in shared memory

  // Number of blocks in a cluster that share the sums of a tile; 1: a block has all of them.
  int sharers() const { return leaves_parts ? 1 : static_cast<int>(plan.split); }
  bool leaves_parts = false;  // blocks that share a tile store their sums to memory (matrix_parts.h)

  int element_bytes() const { return kernel.element_bytes; }
  std::string index_type() const { return narrow ? "unsigned" : "int64_t"; }
  MatrixFrame(const MatrixFrame&) = delete;  // its parts point at each other
  // A body with the batch dims set.
  Body body() const { return *body_; }
  // Declares the batch dims' indices from `batch`.
  void print_batch_indices();
  // Declares an index per dim from the flattened `number`, under these names; empty names are not declared.
  void print_indices(const Dims& dims, const std::string& number, const std::vector<std::string>& names);
  // The same with generated names, which are set in `body`.
  void print_indices(const Dims& dims, const std::string& number, Body& body);

 private:
  std::optional<Body> body_;
};

// print_tile_counts() declares row_tiles, column_tiles and tiles; print_tile_place() declares batch,
// first_row and first_column of tile number `block`.
void print_tile_counts(MatrixFrame& frame);
void print_tile_place(MatrixFrame& frame, const std::string& block);
// Declares begin and end of this block's steps of the depth.
void print_steps(MatrixFrame& frame);

// kernels::contiguous for the frame's dims.
std::optional<sym::Expr> contiguous(const MatrixFrame& frame, const loop::Access& access,
                                    const loop::Dim& unit, int64_t lanes, bool ragged = false);

}  // namespace stridec::codegen::cuda

// What the parts of the matrix emitter share: a contraction taken apart by its plan, and names of the generated text.
//
// Generated variables, in order of appearance: rank (of the block in its cluster), batch, first_row, first_column (of
// the tile), thread, steps, shared; of a side a_base, a_inside, a_0.. (indices); step, slot of the ring; sums.
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
  // `narrow`: flattened numbers of rows, columns and depth fit in 31 bits. `plan`: which dims those are.
  MatrixFrame(const loop::Program& program, const loop::Nest& nest, const kernels::MatrixKernel& kernel,
              kernels::MatrixPlan plan, bool narrow);

  const loop::Program& program;
  loop::Nest nest;  // with the reduced dims beside the parallel ones, so that facts know them
  const kernels::MatrixKernel& kernel;
  const bool narrow;
  KernelText text;
  kernels::MatrixPlan plan;
  kernels::Contraction contraction;
  const kernels::Factor* a;  // of the rows
  const kernels::Factor* b;  // of the columns
  Dims batch, rows, columns, depth;
  // What makes the columns' factor, of whole rows (kernels/norm_prologue.h); `nest` is the product behind it.
  std::optional<kernels::RowPrologue> prologue;
  // Of a pair (kernels/dual_gemm.h) `nest` is its product, and each result has two sums: kPairBlock of them beside as many, along
  // the rows or the columns.
  std::optional<kernels::Pair> pair;
  bool pairs(const Dims& dims) const { return pair && !dims.empty() && dims.back().var == pair->dim; }
  Dims results(const Dims& dims) const;  // the rows or the columns as what is stored has them
  sym::Facts facts;
  DType a_element, b_element;  // in shared memory

  // Blocks that have a part of the sums of a tile each, in a cluster; with 1 a block has all of them.
  int sharers() const { return leaves_parts ? 1 : static_cast<int>(plan.split); }
  bool leaves_parts = false;  // blocks that share a tile leave their sums in memory (matrix_parts.h)

  int element_bytes() const { return kernel.element_bytes; }
  std::string index_type() const { return narrow ? "unsigned" : "int64_t"; }
  MatrixFrame(const MatrixFrame&) = delete;  // its parts point at each other
  // A body whose batch dims are set.
  Body body() const { return *body_; }
  // Declares the batch dims' indices from the number `batch`.
  void print_batch_indices();
  // Declares an index per dim from the flattened number, under these names. Names that are empty are not declared.
  void print_indices(const Dims& dims, const std::string& number, const std::vector<std::string>& names);
  // The same with names of its own, set in `body`.
  void print_indices(const Dims& dims, const std::string& number, Body& body);

 private:
  std::optional<Body> body_;
};

// Declares row_tiles, column_tiles, tiles and, for the tile of number `block`, batch, first_row and first_column.
void print_tile_counts(MatrixFrame& frame);
void print_tile_place(MatrixFrame& frame, const std::string& block);
// Declares begin and end of the steps of the depth that this block does.
void print_steps(MatrixFrame& frame);

// kernels::contiguous, of the frame's dims.
std::optional<sym::Expr> contiguous(const MatrixFrame& frame, const loop::Access& access,
                                    const loop::Dim& unit, int64_t lanes, bool ragged = false);

}  // namespace stridec::codegen::cuda

// What the parts of the contraction emitter share: the nest taken apart by its plan, and names of the
// generated text.
//
// Generated variables, in order of appearance: batch, block, panel (of the task); first_column, live_columns;
// block_row, block_rows (rows of the task); first_row, tile_rows (of the tile); a_rows, b, b_stride, tile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/body.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cpu {

using Dims = std::vector<loop::Dim>;

// Elements from row to row of scratch that hold `extent` and room for a unit (a vector, a line) that is stored past them: an
// odd number of units, so that rows fall on all sets of a cache, whatever their length.
sym::Expr scratch_stride(sym::Expr extent, int unit);

// A buffer of the nest's points that lies in scratch for all rows of a block.
struct LocalRows {
  loop::BufferId buffer;
  std::string pointer;  // of the block's first row
  std::string stride;   // elements from row to row; "": one row's memory serves all
};

// An f32 value of a row that its epilogue uses and another part has made: one for each row of a block.
struct RowValue {
  loop::ValueId value;
  std::string pointer;
};

struct ContractionFrame {
  // `points`: the nest whose points have local buffers of their own, and the batch dims' values; the nest itself
  // unless it is a link of a chain.
  ContractionFrame(KernelText& text, const loop::Program& program, const loop::Nest& nest,
                   kernels::GemmPlan plan, const loop::Nest* points = nullptr);

  const loop::Program& program;
  const loop::Nest& nest;
  KernelText& text;
  kernels::GemmPlan plan;
  kernels::Contraction contraction;
  const kernels::Factor* a;  // broadcast, as the micro-kernel takes it
  const kernels::Factor* b;  // vectorised, likewise
  Dims batch, rows, columns, segments, run;
  Dims reduced;  // segments, then run
  sym::Facts facts;
  int lanes;              // of a vector of the accumulator's dtype
  sym::Expr block_limit;  // most rows of a task
  std::vector<LocalRows> locals;
  std::optional<RowValue> row_value;

  // Of sums.
  std::string element(int width = 1) { return text.value_type(contraction.dtype, width); }
  // Of the factors, as they lie in memory and scratch.
  DType a_dtype() const { return plan.kernel->a; }
  DType b_dtype() const { return plan.kernel->b; }
  std::string a_element(int width = 1) { return text.storage_type(a_dtype(), width); }
  std::string b_element(int width = 1) { return text.storage_type(b_dtype(), width); }
  int a_bytes() const { return byte_size(a_dtype()); }
  int b_bytes() const { return byte_size(b_dtype()); }
  int group() const { return plan.kernel->group(); }
  int step() const { return plan.kernel->step(); }
  // Tiles hold rows of one image each: how many there are and their rows; all rows are one unless the plan copies lines.
  struct Images {
    sym::Expr count, rows;
  };
  Images images() const;
  // All lanes of a factor's value, as they lie in memory.
  std::string stored(Body& body, loop::ValueId value, DType dtype);
  // Declares the plan's micro-kernel; its name, which no other function of an object has (declarations within a
  // function of C linkage are of one entity, whatever namespace they stand in).
  std::string print_declaration();
  // Of kernels of tile registers: shapes the thread's for a tile of tile_rows rows where they have another shape, and lets
  // go of them. The variable `shaped` remembers it.
  void print_shape_start();
  void print_shape();
  void print_shape_end();

  // A body whose batch dims are set.
  Body body() { return body_.value(); }
  // Declares the batch dims' indices from the number `batch` and remembers them for body().
  void print_batch_indices();
  // The same for dims whose indices are there already.
  void set_batch_index(sym::Expr var, const std::string& name) { body_->set_index(var, name); }
  // Lets `body` reach the local buffers and the value of a row of the block, numbered by a C expression.
  void set_local_row(Body& body, const std::string& row) const;
  const LocalRows* local_rows(loop::BufferId buffer) const;
  // Declares an index variable per dim (names) from the flattened number.
  void print_indices(const Dims& dims, const std::string& number, const std::vector<std::string>& names);
  // Steps the index variables to the next point in row-major order.
  void print_increment(const Dims& dims, const std::vector<std::string>& names);
  // Opens a loop per dim, outer first, and sets their indices in `body`.
  void open_loops(const Dims& dims, Body& body);
  void close_loops(const Dims& dims);

 private:
  std::optional<Body> body_;
  std::optional<kernels::Factor> elements_[2];
};

// The statements around the reduce that its stores need, in order, without the reduce.
std::vector<const loop::Stmt*> epilogue_of(const loop::Nest& nest, const kernels::Contraction& contraction);

}  // namespace stridec::codegen::cpu

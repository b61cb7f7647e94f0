// State that the parts of the contraction emitter share: the nest decomposed by its plan, and names of the
// generated text.
//
// Each part has a layout, which follows from the decomposed nest alone and states the part's scratch, and a
// class derived from it that prints the part. So memory is planned before any text exists.
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

// The row stride in elements of scratch rows with `extent` elements, plus room for one unit (a vector, a
// cache line) stored past their end: an odd number of units, so that rows are spread over all cache sets.
sym::Expr scratch_stride(sym::Expr extent, int unit);

// A buffer local to the nest's points that is kept in scratch for all rows of a block.
struct LocalRows {
  loop::BufferId buffer;
  std::string pointer;  // to the block's first row
  std::string stride;   // elements between rows; "": all rows share one row's memory
};

// An f32 value per row, computed by another part and used by the epilogue: one for each row of a block.
struct RowValue {
  loop::ValueId value;
  std::string pointer;
};

// The nest decomposed by its plan.
struct ContractionShape {
  ContractionShape(const loop::Program& program, const loop::Nest& nest, kernels::GemmPlan plan);

  const loop::Program& program;
  const loop::Nest& nest;
  kernels::GemmPlan plan;
  kernels::Contraction contraction;
  const kernels::Factor* a;  // the broadcast factor of the micro-kernel
  const kernels::Factor* b;  // the vectorised factor of the micro-kernel
  Dims batch, rows, columns, segments, run;
  Dims reduced;  // segments, then run
  sym::Facts facts;
  int lanes;              // per vector of the accumulator's dtype
  sym::Expr block_limit;  // maximum number of rows of a task

  // The dtypes of the factors in memory and scratch.
  DType a_dtype() const { return plan.kernel->a; }
  DType b_dtype() const { return plan.kernel->b; }
  int a_bytes() const { return byte_size(a_dtype()); }
  int b_bytes() const { return byte_size(b_dtype()); }
  int group() const { return plan.kernel->group(); }
  int step() const { return plan.kernel->step(); }
  // Tiles hold rows of one image each: the number of images and their rows. Unless the plan copies lines, all
  // rows count as one image.
  struct Images {
    sym::Expr count, rows;
  };
  Images images() const;
  // Whether the factor reads a buffer that an earlier link of a chain leaves in scratch.
  bool reads_local(const kernels::Factor& factor) const;

 private:
  std::optional<kernels::Factor> elements_[2];
};

struct ContractionFrame : ContractionShape {
  // `points`: the nest whose points own the local buffers and which provides the batch dims; the nest itself
  // unless it is a link of a chain.
  ContractionFrame(KernelText& text, const loop::Program& program, const loop::Nest& nest,
                   kernels::GemmPlan plan, const loop::Nest* points = nullptr);

  KernelText& text;
  std::vector<LocalRows> locals;
  std::optional<RowValue> row_value;

  // The C type of a sum.
  std::string element(int width = 1) { return text.value_type(contraction.dtype, width); }
  std::string a_element(int width = 1) { return text.storage_type(a_dtype(), width); }
  std::string b_element(int width = 1) { return text.storage_type(b_dtype(), width); }
  // All lanes of a factor's value, in its storage type.
  std::string stored(Body& body, loop::ValueId value, DType dtype);
  // Declares the plan's micro-kernel and returns its name, which is unique within an object (declarations in
  // functions of C linkage refer to one entity, in whatever namespace they are).
  std::string print_declaration();
  // For micro-kernels with tile registers (AMX): configures the thread's registers for a tile of tile_rows
  // rows if the shape differs, and releases them. The variable `shaped` records the configuration.
  void print_shape_start();
  void print_shape();
  void print_shape_end();

  // A body whose batch dims are set.
  Body body() { return body_.value(); }
  // Declares the batch dims' indices, computed from the flat index `batch`, and sets them in body().
  void print_batch_indices();
  // The same for dims whose indices are declared already.
  void set_batch_index(sym::Expr var, const std::string& name) { body_->set_index(var, name); }
  // Gives `body` access to the local buffers and the row value of a row of the block; `row` is a C
  // expression.
  void set_local_row(Body& body, const std::string& row) const;
  const LocalRows* local_rows(loop::BufferId buffer) const;
  // Declares an index variable per dim (names) computed from the flat index `number`.
  void print_indices(const Dims& dims, const std::string& number, const std::vector<std::string>& names);
  // Steps the index variables to the next point in row-major order.
  void print_increment(const Dims& dims, const std::vector<std::string>& names);
  // Opens a loop per dim, outer first, and sets their indices in `body`.
  void open_loops(const Dims& dims, Body& body);
  void close_loops(const Dims& dims);

 private:
  std::optional<Body> body_;
};

// The statements other than the reduce that the stores need, in order.
std::vector<const loop::Stmt*> epilogue_of(const loop::Nest& nest, const kernels::Contraction& contraction);

}  // namespace stridec::codegen::cpu

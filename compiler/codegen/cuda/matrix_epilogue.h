// What follows the sum of a matrix product, on a tile of sums in shared memory: the nest's own statements, a few
// neighbouring columns at a time, with 16-byte accesses where memory is contiguous along the columns.
#pragma once

#include "compiler/codegen/cuda/matrix_frame.h"

namespace stridec::codegen::cuda {

class MatrixEpilogue {
 public:
  MatrixEpilogue(MatrixFrame& frame, bool vectors);

  sym::Expr condition() const { return condition_; }  // of the vectors' sizes
  std::vector<loop::BufferId> aligned() const;        // what has to lie on a multiple of 16 bytes

  // A part of the tile whose sums are complete in shared memory: `sums`, lines of columns + kSumPadding elements.
  struct Part {
    int rows, columns;
    std::string first_row, first_column;  // C expressions: within the tile of the block
    std::string thread;                   // C expression: number among the threads that take part
    int threads;
    int together;  // pieces that a thread has registers for at a time
  };
  void print(const Part& part);

  // Loads of memory that each row has for itself.
  bool has_prefetch() const;
  // Has the rows of the tile at first_row, first_column brought into L2, the row `thread` (a C expression) by a thread.
  void print_prefetch(const std::string& thread);

 private:
  struct Wide {  // an access that moves all columns of a piece at once
    const loop::Access* access;
    bool store;
    std::string name;
  };
  bool by_row(const Wide& wide) const;
  void declare_wide(Body& body, bool rows, bool others);
  void print_piece(const Part& part, Body body, const std::string& which);

  MatrixFrame& f_;
  std::vector<const loop::Stmt*> statements_;
  std::vector<Wide> wide_;
  int lanes_ = 1;
  bool along_columns_ = true;  // stores are not contiguous along the rows
  sym::Expr condition_ = 1;
};

}  // namespace stridec::codegen::cuda

// FMAs on tiles of few rows ("sliced-K"): each warp computes the whole tile over its own slice of every step
// of the depth.
//
// The 4 x 8 threads of a warp have a register tile each. Factors have the same orientation in shared memory
// as in memory, along the depth or along the rows, and a thread reads 16 bytes of a line at a time either
// way, so nothing is transposed.
#pragma once

#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

class Sliced {
 public:
  Sliced(MatrixFrame& frame, const MatrixSide& a, const MatrixSide& b) : f_(frame), a_(a), b_(b) {}

  void print_registers();
  // Declares pointers to the factors of the stage at `a_lines` and `b_lines`, and multiplies them.
  void print_step();
  // Stores all slices' sums to `sums` and, between barriers, adds them in slice order into the first one's
  // place.
  void print_sums();

 private:
  int lanes(const MatrixSide& side) const { return &side == &a_ ? 4 : 8; }
  int held(const MatrixSide& side) const;      // rows per thread
  int piece() const;                           // elements in 16 bytes
  int together(const MatrixSide& side) const;  // adjacent rows per thread
  const char* name(const MatrixSide& side) const { return &side == &a_ ? "a" : "b"; }
  std::string row_of(const MatrixSide& side, const std::string& number) const;
  void print_read(const MatrixSide& side);

  MatrixFrame& f_;
  const MatrixSide &a_, &b_;
};

}  // namespace stridec::codegen::cuda

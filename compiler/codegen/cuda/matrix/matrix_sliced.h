// Multiply-adds of tiles of few rows: each warp has the whole tile, and of every step of the depth a slice of its own.
//
// 4 x 8 threads of a warp have a tile of registers each. Factors lie in shared memory as they do in memory, along the
// depth or along the rows, and a thread takes 16 bytes of a line at a time either way: no element is turned.
#pragma once

#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

class Sliced {
 public:
  Sliced(MatrixFrame& frame, const MatrixSide& a, const MatrixSide& b) : f_(frame), a_(a), b_(b) {}

  void print_registers();
  // Of the stage at `a_lines` and `b_lines`, pointers to its factors.
  void print_step();
  // All slices' sums into `sums`, and between barriers their total, in the order of the slices, into the first's place.
  void print_sums();

 private:
  int lanes(const MatrixSide& side) const { return &side == &a_ ? 4 : 8; }
  int held(const MatrixSide& side) const;      // rows of a thread
  int piece() const;                           // elements of 16 bytes
  int together(const MatrixSide& side) const;  // rows of a thread that lie next to each other
  const char* name(const MatrixSide& side) const { return &side == &a_ ? "a" : "b"; }
  std::string row_of(const MatrixSide& side, const std::string& number) const;
  void print_read(const MatrixSide& side);

  MatrixFrame& f_;
  const MatrixSide &a_, &b_;
};

}  // namespace stridec::codegen::cuda

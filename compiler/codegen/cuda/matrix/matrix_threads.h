// FMAs by threads with a register tile each.
//
// A warp computes a part of the tile with 8 x 4 or 4 x 8 threads, which read 16 bytes of neighbouring rows of
// a depth step at a time. The next step is loaded while the current one is multiplied, across stages too: the
// first step of the next stage together with the last step of a stage. A factor that is contiguous along the
// depth is transposed one stage ahead, into one of two tiles after the ring.
#pragma once

#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

class ThreadTiles {
 public:
  ThreadTiles(MatrixFrame& frame, MatrixSide& a, MatrixSide& b) : f_(frame), a_(a), b_(b) {}

  int64_t bytes() const;  // of dynamic shared memory
  void print_registers();
  void print_stage();  // all steps of a stage except the last, which is then in registers
  // Multiplies the last step and loads the first one of the next stage. Before the first stage, registers are
  // zero.
  void print_next_stage();
  void print_turns();  // transposes the next stage, which has arrived
  void print_sums();

 private:
  int warp_rows() const { return f_.kernel.rows / f_.kernel.warps_rows; }
  int warp_columns() const { return f_.kernel.columns / f_.kernel.warps_columns; }
  int lanes(const MatrixSide& side) const {
    return (&side == &a_) == (warp_rows() >= warp_columns()) ? 8 : 4;
  }
  int held(const MatrixSide& side) const {  // rows per thread
    return (&side == &a_ ? warp_rows() : warp_columns()) / lanes(side);
  }
  int together() const { return 16 / f_.element_bytes(); }  // adjacent rows
  const char* name(const MatrixSide& side) const { return &side == &a_ ? "a" : "b"; }
  int stage() const { return a_.stage_bytes() + b_.stage_bytes(); }
  // Byte offset and size of transposed tiles.
  int turned_at() const { return f_.kernel.stages * stage(); }
  int turned(const MatrixSide& side) const { return side.is_staged() ? side.tile_bytes() : 0; }
  // The thread's row with this index (a C expression), relative to its first one.
  std::string row_of(const MatrixSide& side, const std::string& number) const;
  void print_lines();
  // Loads the thread's rows of step `k` (a C expression) into registers.
  void print_read(const std::string& k);
  void print_products(const std::string& k);

  MatrixFrame& f_;
  MatrixSide &a_, &b_;
};

}  // namespace stridec::codegen::cuda

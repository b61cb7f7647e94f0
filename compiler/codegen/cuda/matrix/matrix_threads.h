// Multiply-adds of tiles by threads with a tile of registers each.
//
// A warp has a part of the tile, 8 x 4 or 4 x 8 threads, which read 16 bytes of neighbouring rows of a step of the depth
// at a time. The next step's are loaded while this one's are multiplied, across stages as well: with the last step of a
// stage the first one of the next. A factor that lies along the depth is turned a stage ahead, into one of two tiles
// behind the ring.
#pragma once

#include "compiler/codegen/cuda/matrix/matrix_side.h"

namespace stridec::codegen::cuda {

class ThreadTiles {
 public:
  ThreadTiles(MatrixFrame& frame, MatrixSide& a, MatrixSide& b) : f_(frame), a_(a), b_(b) {}

  int64_t bytes() const;  // of dynamic shared memory
  void print_registers();
  void print_stage();  // all steps of a stage but the last, which is in registers then
  void
  print_next_stage();  // the last one, beside the first of the next stage; before the first, registers are zero
  void print_turns();  // of the stage after this one, which has come
  void print_sums();

 private:
  int warp_rows() const { return f_.kernel.rows / f_.kernel.warps_rows; }
  int warp_columns() const { return f_.kernel.columns / f_.kernel.warps_columns; }
  int lanes(const MatrixSide& side) const {
    return (&side == &a_) == (warp_rows() >= warp_columns()) ? 8 : 4;
  }
  int held(const MatrixSide& side) const {  // rows of a thread
    return (&side == &a_ ? warp_rows() : warp_columns()) / lanes(side);
  }
  int together() const { return 16 / f_.element_bytes(); }  // rows that lie next to each other
  const char* name(const MatrixSide& side) const { return &side == &a_ ? "a" : "b"; }
  int stage() const { return a_.stage_bytes() + b_.stage_bytes(); }
  // What is turned, in bytes.
  int turned_at() const { return f_.kernel.stages * stage(); }
  int turned(const MatrixSide& side) const { return side.is_staged() ? side.tile_bytes() : 0; }
  // The thread's row of this number (a C expression), from its first one on.
  std::string row_of(const MatrixSide& side, const std::string& number) const;
  void print_lines();
  void print_read(const std::string& k);  // the thread's rows of step `k` (a C expression) into registers
  void print_products(const std::string& k);

  MatrixFrame& f_;
  MatrixSide &a_, &b_;
};

}  // namespace stridec::codegen::cuda

#include "compiler/codegen/cuda/matrix/matrix_threads.h"

#include <algorithm>

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {

int64_t ThreadTiles::bytes() const {
  const int64_t sums =
      int64_t{f_.kernel.rows} * (f_.kernel.columns + kernels::kSumPadding) * f_.element_bytes();
  return std::max<int64_t>(turned_at() + 2 * (turned(a_) + turned(b_)), sums);
}

void ThreadTiles::print_registers() {
  KernelText& text = f_.text;
  const std::string type = text.value_type(f_.contraction.dtype);
  // One neighbour of a thread differs only in its row and another one only in its column: 16 bytes that they
  // share are read once.
  auto lane = [&](const MatrixSide& side, const char* first, const char* second) {
    return cat("(lane_id / ", first, " % 2 + lane_id / ", second, " % 2 * 2",
               lanes(side) == 8 ? " + lane_id / 16 * 4" : "", ") * ", together());
  };
  text.line(cat("const int thread_row = warp_row + ", lane(a_, "2", "8"), ";"));
  text.line(cat("const int thread_column = warp_column + ", lane(b_, "1", "4"), ";"));
  text.line(cat("alignas(16) ", type, " a[2][", held(a_), "] = {}, b[2][", held(b_), "] = {};"));
  text.line(cat(type, " acc[", held(a_), "][", held(b_), "] = {};"));
  if (a_.is_staged() || b_.is_staged()) text.line("int turn = 0;");
}

std::string ThreadTiles::row_of(const MatrixSide& side, const std::string& number) const {
  const int wide = together();
  return cat("(", number, " / ", wide, " * ", wide * lanes(side), " + ", number, " % ", wide, ")");
}

void ThreadTiles::print_lines() {
  for (const MatrixSide* side : {&a_, &b_})
    f_.text.line(cat("const unsigned char* ", name(*side), "_lines = shared + ",
                     side->is_staged()
                         ? cat(turned_at() + (side == &b_ ? 2 * turned(a_) : 0), " + turn * ", turned(*side))
                         : cat("slot * ", stage(), " + ", side == &b_ ? a_.stage_bytes() : 0),
                     " + thread_", side == &a_ ? "row" : "column", " * ", f_.element_bytes(), ";"));
}

void ThreadTiles::print_read(const std::string& k) {
  for (const MatrixSide* side : {&a_, &b_}) {
    f_.text.line("#pragma unroll");
    f_.text.line(cat("for (int i = 0; i < ", held(*side), "; i += ", together(), ") move_wide<16>(&",
                     name(*side), "[(", k, ") % 2][i], ", name(*side), "_lines + ",
                     side->place(k, cat("i * ", lanes(*side))), ");"));
  }
}

void ThreadTiles::print_products(const std::string& k) {
  f_.text.line("#pragma unroll");
  f_.text.line(cat("for (int i = 0; i < ", held(a_), "; ++i)"));
  f_.text.line("  #pragma unroll");
  f_.text.line(cat("  for (int j = 0; j < ", held(b_),
                   "; ++j) acc[i][j] = ", f_.contraction.dtype == DType::kF64 ? "fma" : "fmaf", "(a[(", k,
                   ") % 2][i], b[(", k, ") % 2][j], acc[i][j]);"));
}

void ThreadTiles::print_stage() {
  print_lines();
  f_.text.line("#pragma unroll");
  f_.text.open(cat("for (int k = 0; k < ", f_.kernel.depth - 1, "; ++k)"));
  print_read("k + 1");
  print_products("k");
  f_.text.close();
}

void ThreadTiles::print_next_stage() {
  print_lines();
  print_read("0");
  print_products(cat(f_.kernel.depth - 1));
}

void ThreadTiles::print_turns() {
  for (MatrixSide* side : {&a_, &b_}) {
    if (!side->is_staged()) continue;
    f_.text.open("");
    f_.text.line(cat("const int staged_tile = slot * ", stage(), " + ", side == &b_ ? a_.stage_bytes() : 0,
                     ", turned_tile = ", turned_at() + (side == &b_ ? 2 * turned(a_) : 0), " + turn * ",
                     turned(*side), ";"));
    side->print_turn();
    f_.text.close();
  }
}

void ThreadTiles::print_sums() {
  KernelText& text = f_.text;
  text.line("#pragma unroll");
  text.line(cat("for (int i = 0; i < ", held(a_), "; ++i)"));
  text.line("  #pragma unroll");
  text.line(cat("  for (int j = 0; j < ", held(b_), "; ++j) sums[(thread_row + ", row_of(a_, "i"), ") * ",
                f_.kernel.columns + kernels::kSumPadding, " + thread_column + ", row_of(b_, "j"),
                "] = acc[i][j];"));
}

}  // namespace stridec::codegen::cuda

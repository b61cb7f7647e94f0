#include "compiler/codegen/cuda/matrix/matrix_sliced.h"

#include <algorithm>

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {

int Sliced::held(const MatrixSide& side) const {
  return (&side == &a_ ? f_.kernel.rows : f_.kernel.columns) / lanes(side);
}

int Sliced::piece() const { return 16 / f_.element_bytes(); }

int Sliced::together(const MatrixSide& side) const {
  return side.along_depth() ? 1 : std::min(piece(), held(side));
}

// The thread's row with this index (a C expression), relative to its first one.
std::string Sliced::row_of(const MatrixSide& side, const std::string& number) const {
  const int wide = together(side);
  if (wide == 1) return cat("(", number, ") * ", lanes(side));
  return cat("((", number, ") / ", wide, " * ", wide * lanes(side), " + (", number, ") % ", wide, ")");
}

void Sliced::print_registers() {
  KernelText& text = f_.text;
  text.line(cat("const int thread_row = lane_id / 8 * ", together(a_), ", thread_column = lane_id % 8 * ",
                together(b_), ";"));
  text.line(cat(text.value_type(f_.contraction.dtype), " acc[", held(a_), "][", held(b_), "] = {};"));
}

void Sliced::print_read(const MatrixSide& side) {
  KernelText& text = f_.text;
  const std::string type = text.value_type(f_.contraction.dtype), lines = cat(name(side), "_lines"),
                    first = &side == &a_ ? "thread_row" : "thread_column";
  const int wide = together(side);
  if (side.along_depth()) {
    text.line(cat("alignas(16) ", type, " ", name(side), "[", held(side), "][", piece(), "];"));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", held(side), "; ++i) move_wide<16>(", name(side), "[i], ", lines,
                  " + ", side.place(cat(first, " + ", row_of(side, "i")), "deep"), ");"));
    return;
  }
  text.line(cat("alignas(16) ", type, " ", name(side), "[", piece(), "][", held(side), "];"));
  text.line("#pragma unroll");
  text.line(cat("for (int d = 0; d < ", piece(), "; ++d)"));
  text.line("  #pragma unroll");
  text.line(cat("  for (int i = 0; i < ", held(side), "; i += ", wide, ") move_wide<",
                wide * f_.element_bytes(), ">(&", name(side), "[d][i], ", lines, " + ",
                side.place("deep + d", cat(first, " + ", row_of(side, "i"))), ");"));
}

void Sliced::print_step() {
  KernelText& text = f_.text;
  const auto element = [&](const MatrixSide& side, const char* row) {
    return side.along_depth() ? cat(name(side), "[", row, "][d]") : cat(name(side), "[d][", row, "]");
  };
  text.line("#pragma unroll");
  text.open(cat("for (int p = 0; p < ", f_.kernel.depth / piece() / f_.kernel.slices, "; ++p)"));
  text.line(cat("const int deep = (warp + p * ", f_.kernel.slices, ") * ", piece(), ";"));
  print_read(a_);
  print_read(b_);
  text.line("#pragma unroll");
  text.line(cat("for (int d = 0; d < ", piece(), "; ++d)"));
  text.line("  #pragma unroll");
  text.line(cat("  for (int i = 0; i < ", held(a_), "; ++i)"));
  text.line("    #pragma unroll");
  text.line(cat("    for (int j = 0; j < ", held(b_),
                "; ++j) acc[i][j] = ", f_.contraction.dtype == DType::kF64 ? "fma" : "fmaf", "(",
                element(a_, "i"), ", ", element(b_, "j"), ", acc[i][j]);"));
  text.close();
}

void Sliced::print_sums() {
  KernelText& text = f_.text;
  const std::string type = text.value_type(f_.contraction.dtype);
  const int wide = piece(), columns = f_.kernel.columns, pitch = columns + kernels::kSumPadding,
            tile = f_.kernel.rows * pitch;
  text.line("#pragma unroll");
  text.line(cat("for (int i = 0; i < ", held(a_), "; ++i)"));
  text.line("  #pragma unroll");
  text.line(cat("  for (int j = 0; j < ", held(b_), "; ++j) sums[warp * ", tile, " + (thread_row + ",
                row_of(a_, "i"), ") * ", pitch, " + thread_column + ", row_of(b_, "j"), "] = acc[i][j];"));
  text.line("__syncthreads();");
  text.line("#pragma unroll");
  text.open(cat("for (int at = thread * ", wide, "; at < ", f_.kernel.rows * columns,
                "; at += ", f_.kernel.workers() * wide, ")"));
  text.line(cat(type, "* const own = sums + at / ", columns, " * ", pitch, " + at % ", columns, ";"));
  text.line(cat("alignas(16) ", type, " total[", wide, "], part[", wide, "];"));
  text.line("move_wide<16>(total, own);");
  text.line("#pragma unroll");
  text.open(cat("for (int s = 1; s < ", f_.kernel.slices, "; ++s)"));
  text.line(cat("move_wide<16>(part, own + s * ", tile, ");"));
  text.line("#pragma unroll");
  text.line(cat("for (int i = 0; i < ", wide, "; ++i) total[i] += part[i];"));
  text.close();
  text.line("move_wide<16>(own, total);");
  text.close();
}

}  // namespace stridec::codegen::cuda

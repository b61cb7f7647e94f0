#include "compiler/codegen/cuda/matrix/matrix_parts.h"

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {
namespace {

constexpr int kPiece = 16;  // bytes that a thread moves at a time

int sum_bytes(const MatrixFrame& f) { return byte_size(f.contraction.dtype); }

}  // namespace

bool has_cluster(const MatrixFrame& f, const GpuTarget& target) {
  return target.clusters && sum_bytes(f) == 4;  // sum_peers() requires 32-bit sums
}

sym::Expr part_bytes(const MatrixFrame& f, sym::Expr tiles) {
  return tiles * (f.plan.split * f.kernel.rows * f.kernel.columns * sum_bytes(f));
}

void print_parts(MatrixFrame& f) {
  KernelText& text = f.text;
  const int wide = kPiece / sum_bytes(f), columns = f.kernel.columns, tile = f.kernel.rows * columns,
            threads = f.kernel.workers();
  const int64_t split = f.plan.split;
  const std::string sum = text.value_type(f.contraction.dtype), type = f.index_type();
  text.open("");
  text.line(cat(sum, "* const parts = (", sum, "*)workspace + (int64_t)block * ", split * tile, ";"));
  // The existing lines of the tile.
  text.line(cat("const ", type, " left = (", type, ")", text.size(extent_of(f.rows)), " - first_row;"));
  text.line(cat("const int lines = left < ", f.kernel.rows, " ? (int)left : ", f.kernel.rows, ";"));
  const auto pieces = [&] {
    text.open(
        cat("for (int at = thread * ", wide, "; at < lines * ", columns, "; at += ", threads * wide, ")"));
    text.line(cat(sum, "* const own = sums + at / ", columns, " * ", columns + kernels::kSumPadding,
                  " + at % ", columns, ";"));
  };
  pieces();
  text.line(cat("move_wide<", kPiece, ">(parts + rank * ", tile, " + at, own);"));
  text.close();
  text.line("__syncthreads();");
  text.line(cat("if (!__syncthreads_or(thread == 0 && comes_last(counters + block, ", split, "))) return;"));
  pieces();
  text.line(cat("alignas(16) ", sum, " part[", split, "][", wide, "], total[", wide, "] = {};"));
  text.line("#pragma unroll");
  text.line(cat("for (int r = 0; r < ", split, "; ++r) move_wide<", kPiece, ">(part[r], parts + r * ", tile,
                " + at);"));
  text.line("#pragma unroll");
  text.line(cat("for (int r = 0; r < ", split, "; ++r)"));
  text.line("  #pragma unroll");
  text.line(cat("  for (int i = 0; i < ", wide, "; ++i) total[i] += part[r][i];"));
  text.line(cat("move_wide<", kPiece, ">(own, total);"));
  text.close();
  text.line("__syncthreads();");
  text.close();
}

}  // namespace stridec::codegen::cuda

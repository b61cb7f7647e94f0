// The epilogue of a GEMM: runs the nest's own statements on a tile of sums in shared memory, a few
// neighbouring columns at a time, with 16-byte accesses where memory is contiguous along the columns. If all
// other operands are the same for all rows, warp groups compute the results in registers, on their
// accumulators, and only the results, in the stored type, pass through shared memory.
#pragma once

#include <functional>
#include <optional>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"

namespace stridec::codegen::cuda {

class MatrixEpilogue {
 public:
  MatrixEpilogue(MatrixFrame& frame, bool vectors);

  sym::Expr condition() const { return condition_; }  // condition on sizes for vectors
  std::vector<loop::BufferId> aligned() const;        // buffers that have to begin at multiples of 16 bytes

  // A part of the tile whose sums are complete in shared memory: `sums`, lines of columns + kSumPadding
  // elements. Rows and columns count sums; a dual GEMM has half as many results along one of the two.
  struct Part {
    int rows, columns;
    std::string first_row, first_column;  // C expressions: offsets within the block's tile
    std::string thread;                   // C expression: index among the participating threads
    int threads;
    int together;  // pieces per thread that fit its registers at a time
    int free = 0;  // registers per thread for operands, sums and results of pieces
    // Consecutive buffers of partial sums to add up; 0: those of the blocks of a cluster.
    int given = 0;
  };
  // Declares registers and loads the operands of the part's first lines, before its sums are complete.
  void print_loads(const Part& part);
  // Prints the part; follows print_loads() in its scope. If `more` (a C expression) holds, `after` comes
  // next, a part of equal size, whose first loads this one issues.
  void print(const Part& part, const std::optional<Part>& after = {}, const std::string& more = "");

  // Whether results are computed in registers, without passing the sums through shared memory; and the
  // epilogue's cost.
  bool in_registers() const;
  int cost() const;
  // The same for a part of 64 rows whose sums are in an array `v` in wgmma's register layout; replaces
  // print_loads and print. The results are in shared memory at `lines` (a C expression) for print_stores,
  // once all threads have arrived there.
  void print_fragment_loads(const Part& part, bool declare);
  void print_fragments(const Part& part, const std::string& lines);
  void print_stores(const Part& part, const std::string& lines);
  int line_bytes(const Part& part) const;  // per line of these results

  // Whether there are loads per row, other than lookups into tables that few rows use.
  bool has_prefetch() const;
  // Prefetches into L2 what the tile at first_row, first_column loads per row; thread `thread` (a C
  // expression) prefetches for one row.
  void print_prefetch(const std::string& thread);

 private:
  struct Wide {  // an access that moves all columns of a piece at once
    const loop::Access* access;
    bool store;
    std::string name;
  };
  // How a part's threads iterate over its lines: `pieces` threads per line; each thread processes `together`
  // lines at a time, `stride` apart.
  struct Lines {
    int pieces, stride, together = 1;
    int step() const;
  };
  bool has_conflict(const loop::Access& access) const;
  std::optional<Lines> lines(const Part& part) const;
  int result_rows(const Part& part) const { return f_.pairs(f_.rows) ? part.rows / 2 : part.rows; }
  int result_columns(const Part& part) const {
    return f_.pairs(f_.columns) ? part.columns / 2 : part.columns;
  }
  // Index of a result's row or column; `at` is a C expression relative to the part.
  std::string row_number(const Part& part, const std::string& at) const;
  std::string column_number(const Part& part, const std::string& at) const;
  // Address in shared memory of a result's first or second sum.
  std::string sum_at(const Part& part, bool second) const;
  int sharers(const Part& part) const;
  std::string thread_of(const Part& part) const;
  std::string first_line(const Part& part, const Lines& l) const;  // of a thread
  bool has_loads() const;
  bool has_rows() const;  // loads that depend on the row
  bool by_row(const Wide& wide) const;
  // Open two scopes each. open_columns(): declares at, column and column indices. open_line(): declares line,
  // row, live and row indices, for line u counted from `first` (a C expression).
  void open_columns(const Part& part, const Lines& l, Body& body);
  void open_line(const Part& part, const Lines& l, const std::string& first, Body& body);
  void load_lines(const Part& part, const Lines& l, const std::string& first);
  void declare_registers(const Lines& l, const std::string& end);
  int load_words(const Lines& l) const;
  void declare_wide(Body& body, const std::function<bool(const Wide&)>& wanted);
  // `lanes`: number of neighbouring elements; 0: the whole piece.
  void move(const Wide& wide, Body body, const std::string& registers, bool store, int lanes = 0);
  void print_pieces(const Part& part);
  void print_piece(const Part& part, const Body& piece, const std::string& which, const std::string& set);
  void print_statements(Body& body, const std::string& sum, const std::string& second);
  const Wide& stored() const;  // requires in_registers()
  // Opens a loop over blocks j of 8 columns: declares `column`, the first of a thread's two columns in the
  // block, and its indices.
  void open_block(const Part& part, Body& body);

  MatrixFrame& f_;
  const Dims rows_, columns_;  // of results
  std::vector<const loop::Stmt*> statements_;
  std::vector<Wide> wide_;
  int lanes_ = 1;
  bool along_columns_ = true;  // false: stores are contiguous along the rows
  sym::Expr condition_ = 1;
};

}  // namespace stridec::codegen::cuda

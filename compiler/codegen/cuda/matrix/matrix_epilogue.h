// What follows the sum of a matrix product: the nest's own statements, on a tile of sums in shared memory, a few
// neighbouring columns at a time, with 16-byte accesses where memory is contiguous along the columns. Where all that joins
// the sums is the same for all rows, warp groups compute results where their sums are, in registers, and shared memory has
// the results, in the type that is stored, on their way to memory.
#pragma once

#include <functional>
#include <optional>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"

namespace stridec::codegen::cuda {

class MatrixEpilogue {
 public:
  MatrixEpilogue(MatrixFrame& frame, bool vectors);

  sym::Expr condition() const { return condition_; }  // of the vectors' sizes
  std::vector<loop::BufferId> aligned() const;        // what has to lie on a multiple of 16 bytes

  // A part of the tile whose sums are complete in shared memory: `sums`, lines of columns + kSumPadding elements.
  // Rows and columns are those of sums; of a pair's results there are half as many along one of the two.
  struct Part {
    int rows, columns;
    std::string first_row, first_column;  // C expressions: within the tile of the block
    std::string thread;                   // C expression: number among the threads that take part
    int threads;
    int together;  // pieces that a thread has registers for at a time
    int given =
        0;  // parts of sums, one behind the other, that add up to them; 0: those of the blocks of a cluster
  };
  // Has what the part's first lines are joined with loaded into registers, declared here: before its sums are complete.
  void print_loads(const Part& part);
  // Behind print_loads, in its scope. Where `more` (a C expression) holds, `after` comes next, as large as this one, and
  // its first loads are done at the end of this one.
  void print(const Part& part, const std::optional<Part>& after = {}, const std::string& more = "");

  // Whether sums need not pass through shared memory; what the statements behind them cost.
  bool in_registers() const;
  int cost() const;
  // Sums of a part of 64 rows as a warp group's instructions leave them, in an array `v`: in the place of print_loads and
  // print. Results lie in shared memory at `lines` (a C expression) for print_stores, when all threads have come so far.
  void print_fragment_loads(const Part& part, bool declare);
  void print_fragments(const Part& part, const std::string& lines);
  void print_stores(const Part& part, const std::string& lines);
  int line_bytes(const Part& part) const;  // of these results

  // Loads of memory that each row has for itself, but for tables that few rows look into.
  bool has_prefetch() const;
  // Has the rows of the tile at first_row, first_column brought into L2, the row `thread` (a C expression) by a thread.
  void print_prefetch(const std::string& thread);

 private:
  struct Wide {  // an access that moves all columns of a piece at once
    const loop::Access* access;
    bool store;
    std::string name;
  };
  // How a part's threads take its lines: `pieces` threads to a line, each thread `together` of them at a time, `stride`
  // apart.
  struct Lines {
    int pieces, stride, together = 1;
    int step() const;
  };
  std::optional<Lines> lines(const Part& part) const;
  int result_rows(const Part& part) const { return f_.pairs(f_.rows) ? part.rows / 2 : part.rows; }
  int result_columns(const Part& part) const {
    return f_.pairs(f_.columns) ? part.columns / 2 : part.columns;
  }
  // The number of a result's row or column, `at` (a C expression) from the part's first.
  std::string row_number(const Part& part, const std::string& at) const;
  std::string column_number(const Part& part, const std::string& at) const;
  // Where in shared memory the sums of a result lie, which of the two.
  std::string sum_at(const Part& part, bool second) const;
  int sharers(const Part& part) const;
  std::string thread_of(const Part& part) const;
  std::string first_line(const Part& part, const Lines& l) const;  // of a thread
  bool has_loads() const;
  bool has_rows() const;  // loads that differ by row
  bool by_row(const Wide& wide) const;
  // Two scopes each: declares at, column and indices; line, row, live and indices, of the line u from `first`
  // (a C expression) on.
  void open_columns(const Part& part, const Lines& l, Body& body);
  void open_line(const Part& part, const Lines& l, const std::string& first, Body& body);
  void load_lines(const Part& part, const Lines& l, const std::string& first);
  void declare_registers(const Lines& l);
  void declare_wide(Body& body, const std::function<bool(const Wide&)>& wanted);
  // `lanes`: neighbouring elements, 0: all of a piece.
  void move(const Wide& wide, Body body, const std::string& registers, bool store, int lanes = 0);
  void print_pieces(const Part& part);
  void print_piece(const Part& part, const Body& piece, const std::string& which);
  void print_statements(Body& body, const std::string& sum, const std::string& second);
  const Wide& stored() const;  // in_registers()
  // Two columns of a thread in each block of 8: `column`, of block j, and its indices.
  void open_block(const Part& part, Body& body);

  MatrixFrame& f_;
  const Dims rows_, columns_;  // of results
  std::vector<const loop::Stmt*> statements_;
  std::vector<Wide> wide_;
  int lanes_ = 1;
  bool along_columns_ = true;  // stores are not contiguous along the rows
  sym::Expr condition_ = 1;
};

}  // namespace stridec::codegen::cuda

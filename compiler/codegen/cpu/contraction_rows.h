// The broadcast factor of a contraction: locates or packs the rows of a tile.
//
// Rows are either read in place, by addresses that are gathered per tile, or copied (converted, reordered) to
// scratch once per block of rows: whole rows, or the image lines that a window's taps share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/kernels/gemm_lines.h"

namespace stridec::codegen::cpu {

// Names of variables for the indices of the row dims.
std::vector<std::string> row_names(const ContractionFrame& f);

// How the rows are found, from the decomposed nest alone.
class RowsLayout {
 public:
  // `indices`: the epilogue uses ContractionRows::row_index().
  RowsLayout(const ContractionShape& shape, bool indices);

  std::vector<sym::Expr> scratch() const;  // the pieces that ContractionRows needs

 protected:
  // A conjunct of the mask in the form "row part + segment part >= 0".
  struct Bound {
    sym::Expr row, segment;
  };

  // Whether the row addresses are worth a table that all panels of the block use.
  bool tabled() const;
  bool has_offsets() const { return !merged_ && !general_; }
  size_t index_tables() const { return indices_ || general_ ? shape_.rows.size() : 0; }
  sym::Expr line_rows() const;
  bool several_images() const;

  const ContractionShape& shape_;
  bool indices_;             // tables of the row dims' indices are needed
  bool read_local_ = false;  // rows of the block are in scratch already, and read there
  bool merged_ = false;      // row r of the block starts at base + r * step_
  sym::Expr step_ = 0;
  // Offset of a row's first element, with segments and run at 0 unless general_.
  sym::Expr offset_ = 0;
  bool general_ = false;  // address and mask are evaluated for every row and segment
  std::vector<Bound> bounds_;
  sym::Expr segment_offset_ = 0;
  sym::Expr mask_ = 1;                   // only if general_
  std::optional<kernels::Lines> lines_;  // only for kLines, like copied_k_
  Dims copied_k_;
  std::optional<sym::Expr> stride_;  // between copied rows, in elements
  // Bytes of pieces of scratch.
  std::vector<sym::Expr> copy_bytes_;  // the packed rows, or each copy of lines
  sym::Expr table_bytes_;              // each table with a value per row
  std::optional<sym::Expr> live_bytes_, zeros_bytes_, addresses_bytes_;

 private:
  void plan_direct();
  void plan_lines();
};

class ContractionRows : RowsLayout {
 public:
  ContractionRows(ContractionFrame& frame, bool indices);

  void print_start();  // once per call of the kernel
  void print_block();  // when the task's rows or batch point change
  void print_tile();   // sets a_rows

  // Whether a tile may skip its first and last segments: taps that are in the padding for all of its rows.
  // print_tile() then sets live_first and live_segments.
  bool skips_segments() const { return live_bytes_.has_value(); }

  // The index of row dim d for row `first_row + i`, as C.
  std::string row_index(size_t d, const std::string& i) const;

 private:
  struct Run {  // dims of k, and the stride between their elements
    Dims dims;
    int64_t step = 1;
  };
  // A range of rows copied to scratch, starting at the block's first row.
  struct Copy {
    Dims rows, k;
    std::string to, count;
  };

  void print_table();
  void print_pack();
  void print_packed_rows(const Copy& copy, Body body);
  bool print_turned_pack();
  void print_packed_elements(const Dims& dims, Body body);
  void print_run(const Run& run, Body body);
  bool print_masked_runs(const Run& run, Body body);
  void print_copy(const Run& run);
  void print_fill(const sym::Expr& count);
  void print_vectors(const sym::Expr& count,
                     const std::function<std::string(const std::string&, int)>& value);
  bool has_step_tail() const;
  void print_step_tail(const std::string& end);
  Run even_run(const Dims& k) const;
  std::optional<std::string> whole_run_inside(const Dims& run, Body& body) const;
  void print_segments();
  void print_lines_start();
  void print_lines();
  void print_lines_tile();

  ContractionFrame& f_;
  const LocalRows* local_ = nullptr;  // only if read_local_
  std::string zeros_, offsets_, live_;
  std::vector<std::string> index_tables_, bound_tables_;
  std::string stride_text_;
  std::vector<std::string> copies_;
};

}  // namespace stridec::codegen::cpu

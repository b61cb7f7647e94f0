// The vectorised factor of a contraction: locates or packs the panel of a task.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/contraction_block_quantized.h"
#include "compiler/codegen/cpu/contraction_frame.h"

namespace stridec::codegen::cpu {

// How the panels are found, from the decomposed nest alone.
class ColumnsLayout {
 public:
  // `keep`: if the C variable keep_panels is set, scratch holds all panels, and consecutive tasks reuse them.
  ColumnsLayout(const ContractionShape& shape, bool keep);

  std::vector<sym::Expr> scratch() const;  // the pieces that ContractionColumns needs

 protected:
  sym::Expr depth() const;

  const ContractionShape& shape_;
  bool keep_;
  std::optional<CompactLayout> compact_layout_;
  bool readable_ = false;  // b's rows are contiguous in memory
  sym::Expr offset_ = 0;   // offset of the element at column 0, k 0
  sym::Expr step_ = 0;     // distance between consecutive k
  // b is contiguous along k instead of along the columns: it is transposed when copied to scratch.
  bool turned_ = false;
  sym::Expr column_step_ = 0;
  bool turned_slice_ = false;             // the same for the loads that b is computed from
  std::vector<sym::Expr> keys_;           // expressions of the batch dims that the panels depend on
  std::optional<sym::Expr> stage_bytes_;  // of the panels in scratch

 private:
  void find_layout();
  void find_turned_slice();
  void find_keys();
};

class ContractionColumns : ColumnsLayout {
 public:
  explicit ContractionColumns(ContractionFrame& frame, bool keep = false);

  void print_start();   // once per call of the kernel
  void print_change();  // for kept panels, once per task: drops those of other batch points
  void print_panel();   // sets b and b_stride, once per panel of a task
  // Whether b is dequantised from packed weights: for a single row, print_row() does it in registers.
  bool computes() const;
  void print_row();  // sums of the row a_rows[0] times the panel's columns, to `tile`
  // The integer dot-product code, or null. With it, its print_panel() defines the panel's pointers.
  CompactColumns* bytes() { return compact_ && compact_->multiplies_bytes() ? &*compact_ : nullptr; }
  bool continuous() const;  // whether the next panel is contiguous after this one
  // The size of a panel, if weights are in panels of the kernel's width that are contiguous across all tasks.
  std::optional<sym::Expr> panel_bytes() const;

 private:
  void print_weights();
  void print_stage();
  void print_blank_columns();
  void print_copy();
  void print_grouped_copy();
  void print_scattered_groups();
  void print_deep_copy();
  void print_column_strips(const std::function<void(const std::string& live)>& strip);
  void print_turned_slice();

  ContractionFrame& f_;
  std::optional<CompactColumns> compact_;  // set if compact_layout_ is
  std::string stage_, staged_;
  std::vector<std::string> key_names_;
};

}  // namespace stridec::codegen::cpu

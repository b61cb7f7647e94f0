// The vectorised factor of a contraction: where the panel of a task is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/contraction_block_quantized.h"
#include "compiler/codegen/cpu/contraction_frame.h"

namespace stridec::codegen::cpu {

class ContractionColumns {
 public:
  // `keep`: where the C variable keep_panels is set, scratch holds all panels and neighbouring tasks that ask for the
  // same ones find them there.
  explicit ContractionColumns(ContractionFrame& frame, bool keep = false);

  void print_start();   // once per call of the kernel
  void print_change();  // of kept panels, once per task: forgets those of other batch points
  void print_panel();   // sets b and b_stride, once per panel of a task
  // Whether b is computed from more compact weights: for a single row, print_row() does it in registers.
  bool computes() const;
  void print_row();  // sums of the row a_rows[0] and the panel's columns, to `tile`
  // Products of bytes, or null: the panel's pointers come from print_panel() of theirs.
  CompactColumns* bytes() { return compact_ && compact_->multiplies_bytes() ? &*compact_ : nullptr; }
  bool continuous() const;  // whether the next panel lies behind this one
  // Of weights in panels as wide as the kernel's, one behind the other for all tasks.
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
  sym::Expr depth() const;
  void print_turned_slice();
  void find_turned_slice();
  void find_keys();

  ContractionFrame& f_;
  std::optional<CompactColumns> compact_;
  bool readable_ = false;  // b's rows are contiguous in memory
  sym::Expr offset_ = 0;   // of the element at column 0, k 0
  sym::Expr step_ = 0;     // from one k to the next
  // b's columns are contiguous along k instead: turned on the way to scratch.
  bool turned_ = false;
  sym::Expr column_step_ = 0;
  bool turned_slice_ = false;  // so are the loads that b is computed from
  std::string stage_, staged_;
  bool keep_;
  std::vector<sym::Expr> keys_;  // what the panels depend on among the batch dims
  std::vector<std::string> key_names_;
};

}  // namespace stridec::codegen::cpu

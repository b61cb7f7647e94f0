// What runs on the sums of a contraction: the rest of the nest's body, a vector of columns at a time.
#pragma once

#include <vector>

#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/codegen/cpu/contraction_rows.h"

namespace stridec::codegen::cpu {

class ContractionEpilogue {
 public:
  explicit ContractionEpilogue(ContractionFrame& frame);

  // Whether it asks for the rows' indices: rows of several dims that do not run as one.
  bool wants_row_indices() const { return !merge_; }
  // Asks for what print() reads of the tile's own: it arrives while the products are summed.
  void print_ahead(const ContractionRows& rows);
  void print(const ContractionRows& rows);  // on `tile`, once per tile
  // On its row `i`, in straight lines where the tile has no other columns than the micro-kernel's.
  void print_row(const ContractionRows& rows, bool straight);
  // Operations on a vector of sums, loads among them.
  int operations() const;

 private:
  bool rows_merge() const;
  Body row_body(const ContractionRows& rows);  // of row `i` of the tile
  void print_columns(Body body, const std::string& live);

  ContractionFrame& f_;
  // Statements that stores need, in order: those once per row, and the others.
  std::vector<const loop::Stmt*> row_, column_;
  bool merge_ = true;  // the row's number replaces the indices of its dims
};

}  // namespace stridec::codegen::cpu

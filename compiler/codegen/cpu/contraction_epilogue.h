// The epilogue of a contraction: the statements that follow the sums, one vector of columns at a time.
#pragma once

#include <vector>

#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/codegen/cpu/contraction_rows.h"

namespace stridec::codegen::cpu {

// The statements and how they see rows, from the decomposed nest alone.
class EpilogueLayout {
 public:
  explicit EpilogueLayout(const ContractionShape& shape);

  // Whether it needs the rows' indices, because several row dims cannot be treated as one.
  bool wants_row_indices() const { return !merge_; }

 protected:
  // The statements that stores need, in order: those that run once per row, and the others.
  std::vector<const loop::Stmt*> row_, column_;
  bool merge_ = true;  // the row number replaces the indices of the row dims

 private:
  bool rows_merge(const ContractionShape& shape) const;
};

class ContractionEpilogue : public EpilogueLayout {
 public:
  explicit ContractionEpilogue(ContractionFrame& frame) : EpilogueLayout(frame), f_(frame) {}

  // Prefetches what print() reads for this tile, while the products are being summed.
  void print_ahead(const ContractionRows& rows);
  void print(const ContractionRows& rows);  // for the sums in `tile`, once per tile
  // For row `i` of the tile; straight-line code if the tile has exactly the micro-kernel's columns.
  void print_row(const ContractionRows& rows, bool straight);
  // The number of operations per vector of sums, loads included.
  int operations() const;

 private:
  Body row_body(const ContractionRows& rows);  // for row `i` of the tile
  void print_columns(Body body, const std::string& live);

  ContractionFrame& f_;
};

}  // namespace stridec::codegen::cpu

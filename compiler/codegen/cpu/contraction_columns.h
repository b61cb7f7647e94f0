// The vectorised factor of a contraction: where the panel of a task is.
#pragma once

#include <string>

#include "compiler/codegen/cpu/contraction_frame.h"

namespace stridec::codegen::cpu {

class ContractionColumns {
 public:
  explicit ContractionColumns(ContractionFrame& frame);

  void print_start();  // once per call of the kernel
  void print_panel();  // sets b and b_stride, once per task

 private:
  void print_weights();
  void print_stage();

  ContractionFrame& f_;
  bool readable_ = false;  // b's rows are contiguous in memory
  sym::Expr offset_ = 0;   // of the element at column 0, k 0
  sym::Expr step_ = 0;     // from one k to the next
  // b's columns are contiguous along k instead: turned on the way to scratch.
  bool turned_ = false;
  sym::Expr column_step_ = 0;
  std::string stage_;
};

}  // namespace stridec::codegen::cpu

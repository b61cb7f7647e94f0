// What follows the sums of a tile that warp groups multiply: whether they compute it in registers, where their sums are, and
// send results to memory through shared memory in the type that is stored; else the sums go through it, and threads compute
// line by line. Sums and their results need registers at the same time: a tile that has few left takes fewer columns at a
// time, which statements of many instructions lose more by than by the way of the sums.
#pragma once

#include <optional>
#include <span>

#include "compiler/kernels/cuda_matrix.h"

namespace stridec::kernels {

class GroupRegisters {
 public:
  // `gathers`: threads load and keep their registers.
  GroupRegisters(const MatrixKernel& kernel, DType element, bool gathers);

  // Where sums need more registers than each thread's equal share, the loaders hand some of theirs over.
  struct Handed {
    int loaders, workers;
  };
  const std::optional<Handed>& handed() const { return handed_; }
  // Of sums of a step that are added to others behind it (adds_steps()): with two of them one is added while products make
  // the next. 0: there are none.
  int parts() const { return parts_; }
  int free() const { return free_; }        // of a thread, beside its sums and what addresses take
  int columns() const { return columns_; }  // of sums that results are computed of at a time
  // Whether results of statements of this cost are computed in registers.
  bool have_results(int cost) const;

 private:
  const MatrixKernel& kernel_;
  std::optional<Handed> handed_;
  int parts_, free_, columns_;
};

// Whether statements behind a sum can have their result in registers: one narrow result, and all that joins the sum is the
// same for all `rows`.
bool results_in_registers(const loop::Program& program, std::span<const loop::Stmt* const> statements,
                          const std::vector<loop::Dim>& rows);
int cost_of(std::span<const loop::Stmt* const> statements);  // relative to an add

}  // namespace stridec::kernels

// Register budget for wgmma epilogues: whether warp groups compute the epilogue in registers, on their
// accumulators, and pass only the results, in the stored type, through shared memory. Otherwise the sums go
// to shared memory and threads run the epilogue line by line. Sums and results need registers at the same
// time: a tile with few free registers processes fewer columns at a time, which costs expensive epilogues
// more than the round trip of the sums through shared memory does.
#pragma once

#include <optional>
#include <span>

#include "compiler/kernels/cuda_matrix.h"

namespace stridec::kernels {

class GroupRegisters {
 public:
  // `gathers`: factors are loaded by threads, which keep their registers.
  GroupRegisters(const MatrixKernel& kernel, DType element, bool gathers);

  // If sums need more registers than an equal share per thread, the loaders hand some of theirs over:
  // registers per thread of either kind.
  struct Handed {
    int loaders, workers;
  };
  const std::optional<Handed>& handed() const { return handed_; }
  // Sets of per-step accumulators, which are added to the totals after the step (adds_steps()); with two, one
  // is added while the tensor cores fill the other. 0: no such accumulators.
  int parts() const { return parts_; }
  int free() const { return free_; }        // per thread, besides its sums and addresses
  int columns() const { return columns_; }  // columns of sums per epilogue pass
  // Whether an epilogue of this cost is computed in registers.
  bool have_results(int cost) const;

 private:
  const MatrixKernel& kernel_;
  std::optional<Handed> handed_;
  int parts_, free_, columns_;
};

// Whether an epilogue can have its result in registers: it has one narrow result, and its other operands do
// not depend on `rows`.
bool results_in_registers(const loop::Program& program, std::span<const loop::Stmt* const> statements,
                          const std::vector<loop::Dim>& rows);
int cost_of(std::span<const loop::Stmt* const> statements);  // relative to an addition

}  // namespace stridec::kernels

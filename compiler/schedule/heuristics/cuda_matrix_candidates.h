// The plans with which a GPU can compute a contraction as a matrix product, and the cycles that the model
// (cost/cuda_contraction_cost.h) expects of each of them at a list of sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/cuda_matrix.h"

namespace stridec::schedule {

// The sizes of one shape: values of symbols.
using SizesOf = std::function<std::optional<int64_t>(sym::Expr)>;
// The product of the extents, each at least 1.
double points_at(const std::vector<loop::Dim>& dims, const SizesOf& sizes);

// A plan with the logarithm of its cycles, times the size's weight, at every size that differs from the
// previous one.
struct MatrixCandidate {
  kernels::MatrixPlan plan;
  bool turned;  // computes the transposed result, whose stores are not contiguous along columns
  std::vector<double> logs;
};

struct MatrixCandidates {
  std::vector<double> elements;  // of the GEMM's result, at every size
  std::vector<MatrixCandidate> plans;
  std::vector<SizesOf> sizes;
  bool given = false;   // the sizes are the caller's, and weigh the same
  bool single = false;  // one plan for all of them

  double weight(size_t size) const;
  double weights() const { return weight(0) + static_cast<double>(sizes.size() - 1); }
};

// The candidates at the given sizes or, without any, at all sizes that the ranges allow. The plans are the
// same for both; there are none if the nest is not a contraction with rows and columns.
MatrixCandidates matrix_candidates(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target, std::span<const SizesOf> given = {});

}  // namespace stridec::schedule

// Dual GEMM: two GEMMs that share their left operand and whose results are combined pointwise, as in a gated
// MLP (SwiGLU):
//
//   nest gated (%m, %n<8192)
//     %0 = reduce sum (%k) x[%m, %k] * w[%k, %n + 8 * (%n // 8)]
//     %1 = reduce sum (%k) x[%m, %k] * w[%k, %n + 8 * (%n // 8) + 8]
//     store y[%m, %n] f(%0, %1)
//
// The two weights are interleaved in one matrix: 8 columns of the first, then 8 of the second. A tile of the
// GEMM with twice as many columns then holds both sums of a point. In tensor-core fragments both are in
// registers of one thread, along the rows as well as along the columns.
#pragma once

#include <optional>
#include <utility>

#include "compiler/loop/program.h"

namespace stridec::kernels {

constexpr int64_t kPairBlock = 8;
// Index of a point of the first GEMM in the interleaved dim; the second one's is kPairBlock larger.
sym::Expr paired_index(sym::Expr point);

struct DualGemm {
  // The combined GEMM: its dim is twice as long and indexes the interleaved weight directly. The second sum
  // appears there as a copy of the first, so that the statements that use it stay valid.
  loop::Nest nest;
  sym::Expr dim;
  loop::ValueId second;                   // the result of the second sum
  loop::ValueId first_load, second_load;  // loads of the weight
};

// Returns nothing if the nest is not of this form.
std::optional<DualGemm> match_dual_gemm(const loop::Nest& nest);
// Returns the combined GEMM, or the nest itself if it is not a dual GEMM.
loop::Nest product_of(const loop::Nest& nest);

// If two sums of the nest differ in exactly one load each, returns these loads.
std::optional<std::pair<const loop::Load*, const loop::Load*>> differing_loads(const loop::Nest& nest,
                                                                               const loop::Reduce& a,
                                                                               const loop::Reduce& b);
// Returns the indices of the nest's two loops if it has exactly two and both are sums.
std::optional<std::pair<size_t, size_t>> two_sums(const loop::Nest& nest);

}  // namespace stridec::kernels

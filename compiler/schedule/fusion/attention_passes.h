// Finds attention's forward pass, and its backward pass, among the nests of a program.
//
//   s = q k^T * scale; p = softmax(s); o = p v           the forward pass
//   dv = p^T do; dp = do v^T; ds = p * (dp - sum(p * dp)) * scale; dq = ds k; dk = ds^T q
//
// Values are followed through the buffers between nests (value_graph.h), so that it does not matter how
// fusion has cut the backward pass.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/fusion/value_graph.h"

namespace stridec::schedule {

// A tensor as a nest indexes it, over the variables of a ForwardPass.
struct TensorRows {
  loop::BufferId buffer;
  std::vector<sym::Expr> index;
  bool operator==(const TensorRows&) const = default;
};
TensorRows rows_of(const loop::Access& access, const sym::Substitution& at, const sym::Facts& facts);

struct ForwardPass {
  int scores = -1, softmax = -1, values = -1;  // positions of the steps
  std::vector<loop::BufferId> weights;         // all copies of p, of several types
  std::vector<sym::Expr> place;  // their index: the batch dims, the row, the key and constants in some order
  std::vector<loop::Dim> dims;   // of the softmax: the batch dims and the row
  std::vector<loop::Dim> batch;
  loop::Dim row, key, depth;
  sym::Facts facts;
  TensorRows q, k, v, o;
  DType dtype = DType::kBF16;  // of the factors
  // The contraction of q and k with what is computed of its sum, and its index variables as those here. Its
  // only store is of the score.
  loop::Nest score;
  sym::Substitution score_at;
  // If the score is a multiple of the sum, apart from a causal mask, with which row r sees the keys before
  // r + seen.
  std::optional<double> scale;
  std::optional<sym::Expr> seen;
  loop::ValueId maximum, sum;  // of a row of scores and of weights, in the softmax
  // Strides of arena buffers with which the kernel can read them.
  std::vector<std::pair<loop::BufferId, std::vector<sym::Expr>>> layouts;
};

// Makes one kernel of attention's forward pass where the target has one.
using ChainAttention = std::function<void(loop::Program& program)>;

// The forward pass whose last contraction is the step at `values`, if `chain` makes one kernel of it and p
// has other readers.
std::optional<ForwardPass> find_forward_pass(const loop::Program& program, const loop::Steps& steps,
                                             const Flow& flow, int values, const ChainAttention& chain);

// One contraction of the backward pass: the step, and its index variables as those of the ForwardPass.
struct BackwardProduct {
  int step = -1;
  sym::Substitution at;
  // Of dq and dk. ds as a multiple of g = p * (dp - sum(p * dp)), where it is one or the mask hides the key;
  // otherwise ds is a pointwise function of g: that of `gradient`, in which the element `base` is g. It may
  // read weights, tensors in memory and, if `reads_sum`, the sum of q k.
  std::optional<double> scale = 1;
  ValueGraph::Element gradient, base;
  bool reads_sum = false;
};

struct BackwardPass {
  BackwardProduct dq, dk, dv;
  TensorRows grad;        // do
  std::set<int> between;  // steps that compute dp and ds, which nothing else reads
  // Of the program, while it does not change.
  std::shared_ptr<const ValueGraph> values;
};

// Whether the element is the sum of q k in the program's own nest of the scores.
bool is_score_sum(const loop::Program& program, const loop::Steps& steps, const ForwardPass& forward,
                  const ValueGraph::Element& element);

// The backward pass that reads p, if nothing else does.
std::optional<BackwardPass> find_backward_pass(const loop::Program& program, const loop::Steps& steps,
                                               const Flow& flow, const ForwardPass& forward);

// What the backward pass reads of each row of scores, to compute p again: the maximum M and the logarithm S
// of the sum of exp(s - M), or, of scores that are multiples of finite sums, M + S alone. In that sum S would
// be lost where a mask adds a large number to all scores of a row. Buffers over `dims`; the others are
// invalid.
struct RowStatistics {
  loop::BufferId maximum, log_sum, log_sum_exp;
};
RowStatistics add_row_statistics(loop::Program& program, const std::vector<loop::Dim>& dims, bool combined,
                                 loop::Storage storage = loop::Storage::kArena);

// Removes stores from the softmax and adds those of the rows' statistics.
void store_row_statistics(const loop::Program& program, loop::Nest& softmax, const ForwardPass& forward,
                          const RowStatistics& to, const std::set<loop::BufferId>& dropped);

}  // namespace stridec::schedule

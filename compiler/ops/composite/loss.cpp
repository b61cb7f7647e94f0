#include "compiler/ops/composite/loss.h"

#include <limits>
#include <numbers>
#include <utility>

#include "compiler/base/text.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/nodes.h"

namespace stridec::ops {

using graph::OpKind;

Term smooth_l1(Term gap, double beta) {
  const Term size = abs(gap);
  return beta == 0 ? size : select(less(size, beta), square(size) * (0.5 / beta), size - 0.5 * beta);
}
Term huber(Term gap, double delta) {
  const Term size = abs(gap);
  return select(less_equal(size, delta), square(size) * 0.5, (size - 0.5 * delta) * delta);
}

Term binary_cross_entropy(Term x, Term y) {
  const Term on = maximum(log(x), -100), off = maximum(apply(OpKind::kLog1p, -x), -100);
  return (y - 1.0) * off - y * on;
}
Term binary_cross_entropy_of_logits(Term x, Term y, std::optional<Term> positive) {
  const Term tail = apply(OpKind::kLog1p, exp(-abs(x)));
  if (!positive) return maximum(x, 0) - x * y + tail;
  const Term weight = (*positive - 1.0) * y + 1.0;
  return subtract_from(1, y) * x + weight * (tail + maximum(-x, 0));
}

Term kl_divergence(Term x, Term target, bool of_logs) {
  if (of_logs) return exp(target) * (target - x);
  const Term entropy = select(equal(target, 0), 0, target * log(target));
  return entropy - target * x;
}
Term hinge_embedding(Term x, Term y, double margin) {
  const Term apart = select(equal(y, 1), 0, relu(subtract_from(margin, x)));
  return apart + select(equal(y, -1), 0, x);
}
Term soft_margin(Term x, Term y) { return apply(OpKind::kLog1p, exp(-(x * y))); }

Term poisson_nll(Term x, Term target, bool of_logs, bool full, double epsilon) {
  const Term loss = of_logs ? exp(x) - target * x : x - target * log(x + epsilon);
  if (!full) return loss;
  const Term stirling = target * log(target) - target + log(target * (2 * std::numbers::pi)) * 0.5;
  return loss + select(less_equal(target, 1), 0, stirling);
}

Term multi_margin(Term x, Term target, double p, double margin, std::optional<Term> weight) {
  const Term at = unsqueeze(target, {1});
  Term gap = relu(subtract_from(margin, gather_elements(x, at, 1, Negative::kError)) + x);
  if (p == 2) gap = square(gap);
  if (weight) gap = gap * unsqueeze(gather(*weight, target, 0), {1});
  const Term other = apply(OpKind::kNe, index_along(x.builder(), {1, x.dim(1)}, 1, at.dtype()), at);
  return reduce_mean(select(other, gap, 0), {1});
}

namespace {

// Of a gather along `dim` whose negative indices are errors.
graph::Attributes of_labels(int64_t dim, const std::string& sentence) {
  graph::Attributes attributes = {{"dim", dim}, {"wrap", int64_t{0}}};
  if (!sentence.empty()) attributes.set("sentence", sentence);
  return attributes;
}

// weight[label] of [classes].
Term weight_at(Term weight, Term label, const std::string& sentence) {
  graph::Builder& b = weight.builder();
  graph::Attributes attributes = of_labels(0, sentence);
  attributes.set("batch_dims", int64_t{0});
  return {b, b.add1(OpKind::kGather, {weight.id(), label.id()}, std::move(attributes))};
}

}  // namespace

Term at_label(Term x, Term label, int64_t dim, const std::string& sentence) {
  graph::Builder& b = x.builder();
  return {b, b.add1(OpKind::kGatherElements, {x.id(), label.id()}, of_labels(dim, sentence))};
}

std::string label_sentence(const std::string& label) {
  return label.empty() ? "" : cat(label, " is not one of the {1} classes");
}

ClassLoss class_nll(Term logs, Term target, std::optional<Term> weight, int64_t ignore,
                    const std::string& label, int64_t dim) {
  const Term ignored = equal(target, static_cast<double>(ignore)), at = select(ignored, 0, target);
  const Term own = weight ? weight_at(*weight, at, label_sentence(label))
                          : filled(logs.builder(), target.shape(), logs.dtype(), 1);
  const Term kept = select(ignored, 0, own);
  const Term picked = squeeze(at_label(logs, unsqueeze(at, {dim}), dim, label_sentence(label)), {dim});
  return {select(ignored, 0, -(picked * own)), kept};
}

Term cosine_similarity(Term x, Term y, int64_t dim, double epsilon) {
  const Term length = sqrt(maximum(reduce_sum(square(x), {dim}, kKeep), epsilon * epsilon)),
             other = sqrt(maximum(reduce_sum(square(y), {dim}, kKeep), epsilon * epsilon));
  return reduce_sum((x / length) * (y / other), {dim});
}

Term root_or_zero(Term x, double exponent) {
  const Term none = equal(x, 0), some = select(none, 1, x);
  return select(none, 0, exponent == 0.5 ? sqrt(some) : pow(some, exponent));
}

Term p_norm(Term x, double p, const Dims& dims, bool keep) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Term w = widen(x), size = abs(w);
  const auto rounded = [&](Term t) { return cast(t, x.dtype()); };
  const auto nonzero = [](Term t) { return cast(logical_not(equal(t, 0)), t.dtype()); };
  if (x.rank() == 0 || dims.empty()) return p == 0 ? nonzero(x) : abs(x);
  if (p == 2) return rounded(root_or_zero(reduce_sum(square(w), dims, keep), 0.5));
  if (p == 1) return rounded(reduce_sum(size, dims, keep));
  if (p == 0) return rounded(reduce_sum(nonzero(w), dims, keep));
  if (p == kInfinity) return rounded(reduce_max(size, dims, keep));
  if (p == -kInfinity) return rounded(reduce_min(size, dims, keep));
  if (p < 0) return rounded(pow(reduce_sum(pow(size, p), dims, keep), 1 / p));
  return rounded(root_or_zero(reduce_sum(root_or_zero(size, p), dims, keep), 1 / p));
}

}  // namespace stridec::ops

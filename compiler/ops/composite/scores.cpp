#include "compiler/ops/composite/scores.h"

#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

Term inverse_erf(Term x) {
  const Term sign = apply(OpKind::kSign, x), l = log(subtract_from(1, square(x)));
  const Term v = l * 0.5 + 2 / (3.14159f * 0.147f), v2 = l * (1 / 0.147f);
  return sign * sqrt(sqrt(square(v) - v2) - v);
}

}  // namespace

Term transform_scores(Term scores, ScoreTransform transform) {
  if (transform == ScoreTransform::kNone) return scores;
  if (transform == ScoreTransform::kLogistic) return sigmoid(scores);
  if (transform == ScoreTransform::kProbit) return inverse_erf(scores * 2.0 - 1.0) * 1.41421356;
  const Dims classes{scores.rank() - 1};
  if (transform == ScoreTransform::kSoftmax) return softmax(scores, classes);
  const Term top = reduce_max(scores, classes, kKeep), counted = greater(abs(scores), 1e-7);
  const Term raised = select(counted, exp(scores - top), 0);
  return select(counted, raised, scores * exp(-top)) / reduce_sum(raised, classes, kKeep);
}

Term two_class_scores(Term score, ScoreMeaning meaning, ScoreTransform transform) {
  if (transform == ScoreTransform::kProbit) return transform_scores(concat({score, score}, 1), transform);
  if (transform == ScoreTransform::kLogistic) return sigmoid(concat({-score, score}, 1));
  return concat({meaning == ScoreMeaning::kProbability ? subtract_from(1, score) : -score, score}, 1);
}

}  // namespace stridec::ops

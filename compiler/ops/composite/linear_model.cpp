#include "compiler/ops/composite/linear_model.h"

#include "compiler/base/text.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/features.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

Term linear_scores(Term x, const LinearModel& model) {
  Builder& b = x.builder();
  x = cast(as_rows(x), DType::kF32);
  const auto n = static_cast<int64_t>(model.coefficients.size());
  const int64_t targets = model.targets;
  if (targets < 1 || n % targets) does_not_fit(cat(n, " coefficients for ", targets, " targets"));
  b.require(sym::eq(x.dim(1), n / targets), "rows of {0} features, but coefficients for {1}",
            {x.dim(1), n / targets});
  const Term w = float_table(b, model.coefficients, DType::kF32, {targets, n / targets});
  Term y = matmul(x, transpose(w, 0, 1));
  if (!model.intercepts.empty()) y = y + float_table(b, model.intercepts, DType::kF32);
  return y;
}

Classified linear_classify(Term x, const LinearModel& model, const Labels& labels, ScoreTransform transform) {
  const Term scores = linear_scores(x, model);
  if (model.targets == 1 && labels.size() == 2) {
    const Term index = cast(greater(squeeze(scores, {1}), 0), DType::kI64);
    const Term both = two_class_scores(scores, ScoreMeaning::kProbability, transform);
    return {class_labels(index, labels), both};
  }
  const TermOrStrings label = class_labels(arg_max(scores, 1), labels);
  return {label, transform_scores(scores, transform)};
}

}  // namespace stridec::ops

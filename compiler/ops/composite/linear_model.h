// Linear models, as in ai.onnx.ml. Rows are [rows, features]; a vector is one row.
#pragma once

#include <vector>

#include "compiler/ops/composite/scores.h"

namespace stridec::ops {

struct LinearModel {
  int64_t targets = 1;
  std::vector<double> coefficients;  // [targets, features]
  std::vector<double> intercepts;    // per target; empty: none
};
// x times the coefficients plus the intercepts: f32 [rows, targets]. Throws Error if the coefficients do not
// divide.
Term linear_scores(Term x, const LinearModel& model);
// The class of the highest score. With one target and two labels, the sign of the score decides.
Classified linear_classify(Term x, const LinearModel& model, const Labels& labels, ScoreTransform transform);

}  // namespace stridec::ops

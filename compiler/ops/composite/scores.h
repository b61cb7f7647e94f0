// Transforms of the scores of classifiers and regressors, as in ai.onnx.ml.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// Softmax leaves out scores within 1e-7 of zero with kSoftmaxZero, which stay near zero; kProbit is the
// inverse of the normal distribution function, by Winitzki's approximation as in onnxruntime.
enum class ScoreTransform { kNone, kLogistic, kSoftmax, kSoftmaxZero, kProbit };
// scores [rows, classes]
Term transform_scores(Term scores, ScoreTransform transform);

}  // namespace stridec::ops

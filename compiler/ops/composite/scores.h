// Transforms of the scores of classifiers and regressors, as in ai.onnx.ml.
#pragma once

#include "compiler/ops/composite/labels.h"

namespace stridec::ops {

// Softmax leaves out scores within 1e-7 of zero with kSoftmaxZero, which stay near zero; kProbit is the
// inverse of the normal distribution function, by Winitzki's approximation as in onnxruntime.
enum class ScoreTransform { kNone, kLogistic, kSoftmax, kSoftmaxZero, kProbit };
// scores [rows, classes]
Term transform_scores(Term scores, ScoreTransform transform);

// Transformed scores [rows, 2] of two classes from the score [rows, 1] of the second one, as in onnxruntime:
// - kLogistic: the logistic function of (-s, s);
// - kProbit: kProbit of (s, s); onnxruntime leaves the second column of trees uninitialised;
// - others have no effect: (1 - s, s) if scores are probabilities, else (-s, s).
enum class ScoreMeaning { kProbability, kDecision };
Term two_class_scores(Term score, ScoreMeaning meaning, ScoreTransform transform);

// The outcome of a classifier.
struct Classified {
  TermOrStrings label;  // [rows]
  Term scores;          // [rows, classes], transformed
};

}  // namespace stridec::ops

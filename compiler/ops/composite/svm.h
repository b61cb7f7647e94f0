// Support vector machines: kernels, decision values, votes and class probabilities. Rows are f32 [rows,
// features].
#pragma once

#include <string>
#include <vector>

#include "compiler/ops/composite/scores.h"

namespace stridec::ops {

struct SvmKernel {
  enum class Kind { kLinear, kPolynomial, kRbf, kSigmoid } kind = Kind::kLinear;
  double gamma = 0, offset = 0, degree = 0;
};
// `values` as f32 [rows, values / rows]. Throws Error, which names them `what`, if they do not divide.
Term table_rows(Builder& b, const std::vector<double>& values, int64_t rows, const std::string& what);
// Kernel values of each row of x with each vector: [rows, vectors].
//   polynomial: (gamma x.v + offset)^degree, sigmoid: tanh(gamma x.v + offset), RBF: exp(-gamma |x - v|^2)
Term svm_kernel(Term x, Term vectors, const SvmKernel& kernel);

// One machine per pair of classes, as in libsvm.
struct SvmMachines {
  int64_t classes = 2;
  std::vector<int64_t> vectors_per_class;
  std::vector<double> support_vectors;  // [vectors, features]
  std::vector<double> coefficients;     // [classes - 1, vectors]
  std::vector<double> rho;              // per pair
  std::vector<double> prob_a, prob_b;   // per pair; for probabilities
  SvmKernel kernel;
};
// Decision value of each pair's machine, positive for its first class: [rows, pairs]. Pairs are (0, 1), (0,
// 2), ..., (1, 2), ... For the vectors of a class, row r of the coefficients belongs to the machine against
// the r-th other class.
Term svm_decisions(Term x, const SvmMachines& machines);
// Number of pairs that each class wins: [rows, classes].
Term svm_votes(Term decisions, int64_t classes);
// Class probabilities [rows, classes] from the pairwise ones, logistic functions of the decision values. The
// second method of Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise
// coupling", JMLR 5 (2004), iterated as in libsvm (at most a hundred times, to an error of 0.005 / classes).
Term svm_probabilities(Term decisions, const SvmMachines& machines);

struct SvmRegression {
  int64_t support_vectors = 0;  // 0: the coefficients are one vector
  std::vector<double> vectors;  // [support_vectors, features]
  std::vector<double> coefficients;
  std::vector<double> rho;  // the first one is added; empty: none
  SvmKernel kernel;
  bool one_class = false;  // the result is the sign: 1 or -1
};
// Values of the rows: [rows, 1].
Term svm_regression(Term x, const SvmRegression& machine);

// Classes by votes of the machines. The scores are probabilities if asked for, else the decision values: for
// two classes those of both, as in onnxruntime.
Classified svm_classify(Term x, const SvmMachines& machines, const Labels& labels, bool probabilities,
                        ScoreTransform transform);
// Classes by the highest score, from one row of coefficients per class and rho[0]. Of two classes, the second
// one is chosen wherever a score exceeds 0 or, if no coefficient is negative (probabilities), reaches 1/2, as
// in onnxruntime.
Classified linear_svm_classify(Term x, const SvmMachines& machines, const Labels& labels,
                               ScoreTransform transform);

}  // namespace stridec::ops

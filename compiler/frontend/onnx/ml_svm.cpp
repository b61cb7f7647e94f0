// Support vector machines of ai.onnx.ml.
#include <algorithm>
#include <numeric>

#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/features.h"
#include "compiler/ops/composite/svm.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

Term rows_of(const Context& c) { return as_rows(cast(c.in(0), DType::kF32)); }

ScoreTransform transform_of(const Context& c) { return score_transform(c, c.text("post_transform", "NONE")); }

SvmKernel kernel_of(const Context& c) {
  const std::string type = c.text("kernel_type", "LINEAR");
  std::vector<double> p = c.numbers("kernel_params");
  p.resize(3, 0);
  using Kind = SvmKernel::Kind;
  if (type == "LINEAR") return {Kind::kLinear, p[0], p[1], p[2]};
  if (type == "POLY") return {Kind::kPolynomial, p[0], p[1], p[2]};
  if (type == "RBF") return {Kind::kRbf, p[0], p[1], p[2]};
  if (type == "SIGMOID") return {Kind::kSigmoid, p[0], p[1], p[2]};
  c.does_not_fit("kernel_type is '" + type + "'");
}

Outputs svm_regressor(Context& c) {
  const SvmRegression machine{.support_vectors = c.integer("n_supports", 0),
                              .vectors = c.numbers("support_vectors"),
                              .coefficients = c.numbers("coefficients"),
                              .rho = c.numbers("rho"),
                              .kernel = kernel_of(c),
                              .one_class = c.integer("one_class", 0) != 0};
  return {transform_scores(svm_regression(rows_of(c), machine), transform_of(c))};
}

// With support vectors: one machine per pair of classes. Without: one row of coefficients per class.
Outputs svm_classifier(Context& c) {
  const Labels labels = class_labels_of(c, "classlabels_ints", "classlabels_strings");
  const auto classes = static_cast<int64_t>(labels.size());
  if (classes < 1) c.does_not_fit("classlabels_strings or classlabels_ints is missing");
  const SvmMachines machines{.classes = classes,
                             .vectors_per_class = c.integers("vectors_per_class"),
                             .support_vectors = c.numbers("support_vectors"),
                             .coefficients = c.numbers("coefficients"),
                             .rho = c.numbers("rho"),
                             .prob_a = c.numbers("prob_a"),
                             .prob_b = c.numbers("prob_b"),
                             .kernel = kernel_of(c)};
  const Dims& sizes = machines.vectors_per_class;
  const bool linear = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == 0 || classes == 1;
  const ScoreTransform transform = transform_of(c);
  const Term x = rows_of(c);
  const Classified out = linear ? linear_svm_classify(x, machines, labels, transform)
                                : svm_classify(x, machines, labels, c.has_attribute("prob_a"), transform);
  return {out.label, out.scores};
}

constexpr Row kRows[] = {
    {"SVMClassifier", svm_classifier, 1, kAnyLater, kMl},
    {"SVMRegressor", svm_regressor, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> svm_rows() { return kRows; }

}  // namespace stridec::onnx

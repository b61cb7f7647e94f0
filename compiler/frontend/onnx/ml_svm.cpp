// Support vector machines of ai.onnx.ml.
#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/svm.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

Term rows_of(const Context& c) {
  const Term x = cast(c.in(0), DType::kF32);
  return x.rank() == 1 ? unsqueeze(x, {0}) : x;
}

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

// Attribute `name` as rows of equal length.
Term table_of(const Context& c, const char* name, int64_t rows) {
  return table_rows(c.b, c.numbers(name), rows, name);
}

Outputs svm_regressor(Context& c) {
  const Term x = rows_of(c);
  const std::vector<double> rho = c.numbers("rho");
  const int64_t n = c.integer("n_supports", 0);
  Term y = n > 0 ? matmul(svm_kernel(x, table_of(c, "support_vectors", n), kernel_of(c)),
                          table_of(c, "coefficients", n))
                 : svm_kernel(x, table_of(c, "coefficients", 1), kernel_of(c));
  c.b.require(sym::eq(y.dim(1), 1), "{0} coefficients a support vector", {y.dim(1)});
  if (!rho.empty()) y = y + rho[0];
  if (c.integer("one_class", 0))
    y = select(greater(y, 0), c.number(DType::kF32, 1), c.number(DType::kF32, -1));
  return {post_transform(c, y, c.text("post_transform", "NONE"))};
}

// ---- classification ----

// With support vectors: one machine per pair of classes; the class with the most wins is chosen. Without: one
// row of coefficients per class; the highest score wins. Where ONNX is silent (two classes without
// probabilities), the scores are onnxruntime's: the decision value and its negation.
Outputs svm_classifier(Context& c) {
  const auto classes = static_cast<int64_t>(
      std::max(c.texts("classlabels_strings").size(), c.integers("classlabels_ints").size()));
  if (classes < 1) c.does_not_fit("classlabels_strings or classlabels_ints is missing");
  const Dims sizes = c.integers("vectors_per_class");
  const std::string transform = c.text("post_transform", "NONE");
  const auto best = [&](Term scores) { return arg_max(scores, 1); };
  const auto label = [&](Term index) {
    return class_labels(c, index, "classlabels_ints", "classlabels_strings");
  };
  const Term x = rows_of(c);
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == 0 || classes == 1) {
    Term scores = matmul(x, transpose(table_of(c, "coefficients", classes), 0, 1));
    if (const auto rho = c.numbers("rho"); !rho.empty()) scores = scores + rho[0];
    Term index = best(scores);
    if (classes == 2) {
      const auto weights = c.numbers("coefficients");
      const bool positive = std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; });
      const Term top = reduce_max(scores, {1});
      index = select(positive ? greater_equal(top, 0.5) : greater(top, 0), 1, index);
    }
    return {label(index), post_transform(c, scores, transform)};
  }
  const SvmMachines machines{.classes = classes,
                             .vectors_per_class = sizes,
                             .support_vectors = c.numbers("support_vectors"),
                             .coefficients = c.numbers("coefficients"),
                             .rho = c.numbers("rho"),
                             .prob_a = c.numbers("prob_a"),
                             .prob_b = c.numbers("prob_b"),
                             .kernel = kernel_of(c)};
  const Term decided = svm_decisions(x, machines);
  const Slot winner = label(best(svm_votes(decided, classes)));
  if (c.has_attribute("prob_a"))
    return {winner, post_transform(c, svm_probabilities(decided, machines), transform)};
  if (classes > 2) return {winner, post_transform(c, decided, transform)};
  if (transform == "NONE" || transform == "LOGISTIC")
    return {winner, post_transform(c, concat({-decided, decided}, 1), transform)};
  if (transform == "PROBIT") return {winner, post_transform(c, concat({decided, decided}, 1), transform)};
  return {winner, concat({subtract_from(1, decided), decided}, 1)};
}

constexpr Row kRows[] = {
    {"SVMClassifier", svm_classifier, 1, kAnyLater, kMl},
    {"SVMRegressor", svm_regressor, 1, kAnyLater, kMl},
};

}  // namespace

std::span<const Row> svm_rows() { return kRows; }

}  // namespace stridec::onnx

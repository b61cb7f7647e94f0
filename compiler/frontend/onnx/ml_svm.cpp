// Support vector machines of ai.onnx.ml.
#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/strings.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMl = "ai.onnx.ml";

Term rows_of(const Context& c) {
  const Term x = cast(c.in(0), DType::kF32);
  return x.rank() == 1 ? unsqueeze(x, {0}) : x;
}

// Kernel values of each row with each support vector: [rows, vectors].
Term kernel(const Context& c, Term x, Term vectors) {
  c.b.require(sym::eq(x.dim(1), vectors.dim(1)), "rows of {0} features, but vectors of {1}",
              {x.dim(1), vectors.dim(1)});
  const std::string type = c.text("kernel_type", "LINEAR");
  std::vector<double> p = c.numbers("kernel_params");
  p.resize(3, 0);
  if (type == "RBF") {
    const Term d = unsqueeze(x, {1}) - unsqueeze(vectors, {0});
    return exp(reduce_sum(square(d), {2}) * -p[0]);
  }
  const Term dot = matmul(x, transpose(vectors, 0, 1));
  if (type == "LINEAR") return dot;
  const Term affine = dot * p[0] + p[1];
  if (type == "POLY") return pow(affine, p[2]);
  if (type != "SIGMOID") c.does_not_fit("kernel_type is '" + type + "'");
  return tanh(affine);
}

// Attribute `name` as rows of equal length.
Term table_of(const Context& c, const char* name, int64_t rows) {
  const std::vector<double> values = c.numbers(name);
  const auto n = static_cast<int64_t>(values.size());
  if (rows < 1 || n == 0 || n % rows) c.does_not_fit(cat(n, " numbers in '", name, "' for ", rows, " rows"));
  return float_table(c.b, values, DType::kF32, {rows, n / rows});
}

Outputs svm_regressor(Context& c) {
  const Term x = rows_of(c);
  const std::vector<double> rho = c.numbers("rho");
  const int64_t n = c.integer("n_supports", 0);
  Term y = n > 0 ? matmul(kernel(c, x, table_of(c, "support_vectors", n)), table_of(c, "coefficients", n))
                 : kernel(c, x, table_of(c, "coefficients", 1));
  c.b.require(sym::eq(y.dim(1), 1), "{0} coefficients a support vector", {y.dim(1)});
  if (!rho.empty()) y = y + rho[0];
  if (c.integer("one_class", 0))
    y = select(greater(y, 0), c.number(DType::kF32, 1), c.number(DType::kF32, -1));
  return {post_transform(c, y, c.text("post_transform", "NONE"))};
}

// ---- classification ----

// Pairs of classes: (0, 1), (0, 2), ..., (1, 2), ...
struct Pairs {
  Dims first, second;
  explicit Pairs(int64_t classes) {
    for (int64_t i = 0; i < classes; ++i)
      for (int64_t j = i + 1; j < classes; ++j) first.push_back(i), second.push_back(j);
  }
};

// Decision value of each pair's machine; positive: its first class [rows, pairs]. For the vectors of a class,
// row r of the coefficients [classes - 1, vectors] belongs to the machine against the r-th other class.
Term decisions(const Context& c, Term x, const Pairs& pairs, int64_t classes) {
  const Dims sizes = c.integers("vectors_per_class");
  if (static_cast<int64_t>(sizes.size()) != classes)
    c.does_not_fit(cat(sizes.size(), " numbers in 'vectors_per_class' for ", classes, " classes"));
  for (int64_t n : sizes)
    if (n < 0) c.does_not_fit(cat("a class has ", n, " support vectors"));
  const int64_t vectors = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const Term values = kernel(c, x, table_of(c, "support_vectors", vectors));
  const Term coefficients = table_of(c, "coefficients", classes - 1);
  c.b.require(sym::eq(coefficients.dim(1), vectors), "{0} coefficients for {1} vectors",
              {coefficients.dim(1), vectors});
  std::vector<Term> sums;  // per class, over its vectors: [rows, classes - 1]
  int64_t begin = 0;
  for (int64_t n : sizes) {
    sums.push_back(matmul(slice(values, 1, begin, n), transpose(slice(coefficients, 1, begin, n), 0, 1)));
    begin += n;
  }
  const Term all = concat(sums, 1);
  Dims of_first, of_second;
  for (size_t p = 0; p < pairs.first.size(); ++p) {
    of_first.push_back(pairs.first[p] * (classes - 1) + pairs.second[p] - 1);
    of_second.push_back(pairs.second[p] * (classes - 1) + pairs.first[p]);
  }
  const Term rho = table_of(c, "rho", 1);
  const auto count = static_cast<int64_t>(pairs.first.size());
  c.b.require(sym::le(count, rho.dim(1)), "{0} numbers in 'rho' for {1} pairs of classes",
              {rho.dim(1), count});
  return gather(all, integer_table(c.b, of_first), 1) + gather(all, integer_table(c.b, of_second), 1) +
         slice(rho, 1, 0, count);
}

// Number of pairs that each class wins: [rows, classes].
Term votes(Term decided, const Pairs& pairs, int64_t classes) {
  Builder& b = decided.builder();
  const auto ones = [&](const Dims& of) {  // [pairs, classes]
    return cast(equal(unsqueeze(integer_table(b, of), {1}), index_along(b, {1, classes}, 1, DType::kI64)),
                DType::kF32);
  };
  const Term won = cast(greater(decided, 0), DType::kF32);
  return matmul(won, ones(pairs.first)) + matmul(subtract_from(1, won), ones(pairs.second));
}

// Class probabilities from pairwise ones; pairwise[., i, j] is the probability of i given i or j. The second
// method of Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling",
// JMLR 5 (2004), iterated as in libsvm (at most a hundred times, to an error of 0.005 / classes).
Term coupled(Term pairwise) {
  Builder& b = pairwise.builder();
  const sym::Expr rows = pairwise.dim(0), k = pairwise.dim(1);
  const auto classes = static_cast<double>(sym::as_const(k).value());
  const Term others = transpose(pairwise, 1, 2);
  const Term same =
      equal(index_along(b, {1, k, 1}, 1, DType::kI64), index_along(b, {1, 1, k}, 2, DType::kI64));
  const Term q =
      select(expand(same, {rows, k, k}), expand(reduce_sum(square(others), {2}, kKeep), {rows, k, k}),
             -(others * pairwise));  // the diagonal of `pairwise` is zero
  const Term number_of = index_along(b, {1, k}, 1, DType::kI64);
  const LoopResult result = loop(
      b, 100, std::nullopt, {filled(b, {rows, k}, DType::kF32, 1 / classes).id()},
      [&](const LoopState& state) {
        const Term p(b, state.carried[0]);
        const Term qp = reduce_sum(q * unsqueeze(p, {1}), {2}), pqp = reduce_sum(p * qp, {1}, kKeep);
        const Term open = greater_equal(reduce_max(abs(qp - pqp), {1}, kKeep), 0.005 / classes);
        const LoopResult swept =
            loop(b, k, std::nullopt, {p.id(), qp.id(), pqp.id()}, [&](const LoopState& inner) {
              const Term p0(b, inner.carried[0]), qp0(b, inner.carried[1]), pqp0(b, inner.carried[2]);
              const Term row = squeeze(slice(q, 1, inner.counter, 1), {1});
              const Term own = slice(row, 1, inner.counter, 1), now = slice(qp0, 1, inner.counter, 1);
              const Term step = (pqp0 - now) / own, whole = step + 1.0;
              const Term here = equal(number_of, Term(b, inner.counter_value));
              return LoopStep{
                  .condition = std::nullopt,
                  .carried = {(select(here, p0 + step, p0) / whole).id(), ((qp0 + step * row) / whole).id(),
                              ((pqp0 + step * (step * own + now * 2.0)) / whole / whole).id()},
                  .stacked = {}};
            });
        return LoopStep{.condition = reduce(OpKind::kReduceOr, open, {0, 1}).id(),
                        .carried = {select(open, Term(b, swept.carried[0]), p).id()},
                        .stacked = {}};
      });
  return {b, result.carried[0]};
}

Term probabilities(const Context& c, Term decided, const Pairs& pairs, int64_t classes) {
  const auto count = static_cast<int64_t>(pairs.first.size());
  const auto row = [&](const char* name) {
    const Term all = table_of(c, name, 1);
    c.b.require(sym::le(count, all.dim(1)), "{0} numbers for {1} pairs of classes", {all.dim(1), count});
    return slice(all, 1, 0, count);
  };
  const Term first = subtract_from(1, sigmoid(decided * row("prob_a") + row("prob_b")));
  const Term bounded = minimum(maximum(first, 1e-7), 1 - 1e-7);
  // [rows, pairs in both orders and a zero] -> [rows, classes, classes]
  const Term all =
      concat({bounded, subtract_from(1, bounded), filled(c.b, {decided.dim(0), 1}, DType::kF32, 0)}, 1);
  Dims place(static_cast<size_t>(classes * classes), 2 * count);
  for (int64_t p = 0; p < count; ++p) {
    const int64_t i = pairs.first[static_cast<size_t>(p)], j = pairs.second[static_cast<size_t>(p)];
    place[static_cast<size_t>(i * classes + j)] = p;
    place[static_cast<size_t>(j * classes + i)] = count + p;
  }
  return coupled(reshape(gather(all, integer_table(c.b, place), 1), {decided.dim(0), classes, classes}));
}

// With support vectors: one machine per pair of classes; the class with the most wins is chosen. Without: one
// row of coefficients per class; the highest score wins. Where ONNX is silent (two classes without
// probabilities), the scores are onnxruntime's: the decision value and its negation.
Outputs svm_classifier(Context& c) {
  const auto classes = static_cast<int64_t>(
      std::max(c.texts("classlabels_strings").size(), c.integers("classlabels_ints").size()));
  if (classes < 1) c.does_not_fit("classlabels_strings or classlabels_ints is wanted");
  const Dims sizes = c.integers("vectors_per_class");
  const std::string transform = c.text("post_transform", "NONE");
  const auto best = [&](Term scores) {
    return Term(c.b, c.b.add1(OpKind::kArgMax, {scores.id()}, {{"dim", int64_t{1}}, {"last", int64_t{0}}}));
  };
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
  const Pairs pairs(classes);
  const Term decided = decisions(c, x, pairs, classes);
  const Slot winner = label(best(votes(decided, pairs, classes)));
  if (c.has_attribute("prob_a"))
    return {winner, post_transform(c, probabilities(c, decided, pairs, classes), transform)};
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

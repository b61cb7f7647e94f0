#include "compiler/ops/composite/svm.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {

using graph::OpKind;

Term table_rows(Builder& b, const std::vector<double>& values, int64_t rows, const std::string& what) {
  const auto n = static_cast<int64_t>(values.size());
  if (rows < 1 || n == 0 || n % rows) does_not_fit(cat(n, " numbers in '", what, "' for ", rows, " rows"));
  return float_table(b, values, DType::kF32, {rows, n / rows});
}

Term svm_kernel(Term x, Term vectors, const SvmKernel& kernel) {
  x.builder().require(sym::eq(x.dim(1), vectors.dim(1)), "rows of {0} features, but vectors of {1}",
                      {x.dim(1), vectors.dim(1)});
  if (kernel.kind == SvmKernel::Kind::kRbf) {
    const Term d = unsqueeze(x, {1}) - unsqueeze(vectors, {0});
    return exp(reduce_sum(square(d), {2}) * -kernel.gamma);
  }
  const Term dot = matmul(x, transpose(vectors, 0, 1));
  if (kernel.kind == SvmKernel::Kind::kLinear) return dot;
  const Term affine = dot * kernel.gamma + kernel.offset;
  return kernel.kind == SvmKernel::Kind::kPolynomial ? pow(affine, kernel.degree) : tanh(affine);
}

namespace {

// Pairs of classes: (0, 1), (0, 2), ..., (1, 2), ...
struct Pairs {
  Dims first, second;
  explicit Pairs(int64_t classes) {
    for (int64_t i = 0; i < classes; ++i)
      for (int64_t j = i + 1; j < classes; ++j) first.push_back(i), second.push_back(j);
  }
};

}  // namespace

Term svm_decisions(Term x, const SvmMachines& m) {
  Builder& b = x.builder();
  const int64_t classes = m.classes;
  const Pairs pairs(classes);
  const Dims& sizes = m.vectors_per_class;
  if (static_cast<int64_t>(sizes.size()) != classes)
    does_not_fit(cat(sizes.size(), " numbers in 'vectors_per_class' for ", classes, " classes"));
  for (int64_t n : sizes)
    if (n < 0) does_not_fit(cat("a class has ", n, " support vectors"));
  const int64_t vectors = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const Term values = svm_kernel(x, table_rows(b, m.support_vectors, vectors, "support_vectors"), m.kernel);
  const Term coefficients = table_rows(b, m.coefficients, classes - 1, "coefficients");
  b.require(sym::eq(coefficients.dim(1), vectors), "{0} coefficients for {1} vectors",
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
  const Term rho = table_rows(b, m.rho, 1, "rho");
  const auto count = static_cast<int64_t>(pairs.first.size());
  b.require(sym::le(count, rho.dim(1)), "{0} numbers in 'rho' for {1} pairs of classes", {rho.dim(1), count});
  return gather(all, integer_table(b, of_first), 1) + gather(all, integer_table(b, of_second), 1) +
         slice(rho, 1, 0, count);
}

Term svm_votes(Term decided, int64_t classes) {
  const Pairs pairs(classes);
  Builder& b = decided.builder();
  const auto ones = [&](const Dims& of) {  // [pairs, classes]
    return cast(equal(unsqueeze(integer_table(b, of), {1}), index_along(b, {1, classes}, 1, DType::kI64)),
                DType::kF32);
  };
  const Term won = cast(greater(decided, 0), DType::kF32);
  return matmul(won, ones(pairs.first)) + matmul(subtract_from(1, won), ones(pairs.second));
}

namespace {

// pairwise[., i, j] is the probability of i given i or j.
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

}  // namespace

Term svm_probabilities(Term decided, const SvmMachines& m) {
  Builder& b = decided.builder();
  const int64_t classes = m.classes;
  const Pairs pairs(classes);
  const auto count = static_cast<int64_t>(pairs.first.size());
  const auto row = [&](const std::vector<double>& values, const char* name) {
    const Term all = table_rows(b, values, 1, name);
    b.require(sym::le(count, all.dim(1)), "{0} numbers for {1} pairs of classes", {all.dim(1), count});
    return slice(all, 1, 0, count);
  };
  const Term first = subtract_from(1, sigmoid(decided * row(m.prob_a, "prob_a") + row(m.prob_b, "prob_b")));
  const Term bounded = minimum(maximum(first, 1e-7), 1 - 1e-7);
  // [rows, pairs in both orders and a zero] -> [rows, classes, classes]
  const Term all =
      concat({bounded, subtract_from(1, bounded), filled(b, {decided.dim(0), 1}, DType::kF32, 0)}, 1);
  Dims place(static_cast<size_t>(classes * classes), 2 * count);
  for (int64_t p = 0; p < count; ++p) {
    const int64_t i = pairs.first[static_cast<size_t>(p)], j = pairs.second[static_cast<size_t>(p)];
    place[static_cast<size_t>(i * classes + j)] = p;
    place[static_cast<size_t>(j * classes + i)] = count + p;
  }
  return coupled(reshape(gather(all, integer_table(b, place), 1), {decided.dim(0), classes, classes}));
}

Term svm_regression(Term x, const SvmRegression& m) {
  Builder& b = x.builder();
  const int64_t n = m.support_vectors;
  const auto table = [&](const std::vector<double>& values, int64_t rows, const char* name) {
    return table_rows(b, values, rows, name);
  };
  Term y = n > 0 ? matmul(svm_kernel(x, table(m.vectors, n, "support_vectors"), m.kernel),
                          table(m.coefficients, n, "coefficients"))
                 : svm_kernel(x, table(m.coefficients, 1, "coefficients"), m.kernel);
  b.require(sym::eq(y.dim(1), 1), "{0} coefficients a support vector", {y.dim(1)});
  if (!m.rho.empty()) y = y + m.rho[0];
  if (m.one_class) y = select(greater(y, 0), number(b, DType::kF32, 1), number(b, DType::kF32, -1));
  return y;
}

Classified svm_classify(Term x, const SvmMachines& m, const Labels& labels, bool probabilities,
                        ScoreTransform transform) {
  const Term decided = svm_decisions(x, m);
  const TermOrStrings winner = class_labels(arg_max(svm_votes(decided, m.classes), 1), labels);
  if (probabilities) return {winner, transform_scores(svm_probabilities(decided, m), transform)};
  if (m.classes > 2) return {winner, transform_scores(decided, transform)};
  const bool plain = transform == ScoreTransform::kNone;
  return {winner,
          two_class_scores(decided, plain ? ScoreMeaning::kDecision : ScoreMeaning::kProbability, transform)};
}

Classified linear_svm_classify(Term x, const SvmMachines& m, const Labels& labels, ScoreTransform transform) {
  const Term table = table_rows(x.builder(), m.coefficients, m.classes, "coefficients");
  Term scores = matmul(x, transpose(table, 0, 1));
  if (!m.rho.empty()) scores = scores + m.rho[0];
  Term index = arg_max(scores, 1);
  if (m.classes == 2) {
    const bool positive = std::ranges::all_of(m.coefficients, [](double w) { return w >= 0; });
    const Term top = reduce_max(scores, {1});
    index = select(positive ? greater_equal(top, 0.5) : greater(top, 0), 1, index);
  }
  const TermOrStrings winner = class_labels(index, labels);
  return {winner, transform_scores(scores, transform)};
}

}  // namespace stridec::ops

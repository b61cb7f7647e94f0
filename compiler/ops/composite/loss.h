// Loss functions of one element, or of one sample; the caller averages them. Operands have one floating-point
// dtype and are computed in it.
#pragma once

#include <optional>
#include <string>

#include "compiler/ops/term.h"

namespace stridec::ops {

Term smooth_l1(Term gap, double beta);  // gap^2 / 2 beta below beta, else |gap| - beta / 2
Term huber(Term gap, double delta);
// Of probabilities; logarithms are at least -100, as in PyTorch.
Term binary_cross_entropy(Term x, Term y);
// Of the sigmoid of x. `positive` weighs the terms of y = 1.
Term binary_cross_entropy_of_logits(Term x, Term y, std::optional<Term> positive);
// target * (log target - x), 0 for a target of 0; `of_logs`: the target is a logarithm.
Term kl_divergence(Term x, Term target, bool of_logs);
// x where y is 1, max(0, margin - x) where it is -1.
Term hinge_embedding(Term x, Term y, double margin);
Term soft_margin(Term x, Term y);  // log(1 + e^(-x y))
// e^x - target x of a logarithm x, or x - target log(x + epsilon); `full` adds Stirling's formula.
Term poisson_nll(Term x, Term target, bool of_logs, bool full, double epsilon);
// max(0, margin - x[target] + x[i])^p over the other classes, mean over classes; x [batch, classes].
Term multi_margin(Term x, Term target, double p, double margin, std::optional<Term> weight);

// The loss of a class index; the logarithms of probabilities have their classes along a dim.
struct ClassLoss {
  Term loss;    // of each target: 0 where it is `ignore`
  Term weight;  // of each target, 0 where it is ignored
};
// `label`: "label {0} of input 't'": names a target that is not a class in the run's error, which otherwise
// calls it an index.
ClassLoss class_nll(Term logs, Term target, std::optional<Term> weight, int64_t ignore,
                    const std::string& label = {}, int64_t dim = 1);
// x[label] along `dim`. A negative label is none. `sentence`: of the run's error, "" for the usual one of an
// index; {0} is the label, {1} the size of the dim.
Term at_label(Term x, Term label, int64_t dim, const std::string& sentence);
// "LABEL is not one of the {1} classes"
std::string label_sentence(const std::string& label);

// x y / sqrt(max(x^2, epsilon^2) max(y^2, epsilon^2)) along dim, of operands that broadcast.
Term cosine_similarity(Term x, Term y, int64_t dim, double epsilon);
// x to the power of a positive exponent. No gradient flows where x is 0, as in PyTorch's norms and
// deviations.
Term root_or_zero(Term x, double exponent);
// The p-norm of x along dim, in x's dtype.
Term p_norm(Term x, double p, const Dims& dims, bool keep);

}  // namespace stridec::ops

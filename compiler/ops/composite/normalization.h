// Softmax and normalisation layers. Narrow floats are computed in f32 and rounded at the end. Inputs with
// channels are [n, channels, spatial...] with any number of spatial dims; parameters of channels are vectors.
// A vector of another length fails with a message that names the parameter.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

Term softmax(Term x, const Dims& dims);
Term log_softmax(Term x, const Dims& dims);
// 1 at the first maximum along dim, 0 elsewhere, in x's dtype.
Term hardmax(Term x, int64_t dim);

struct Normalized {
  Term value, mean, inverse_deviation;  // these two keep the reduced dims with size 1
};
// (x - mean) / sqrt(variance + epsilon) over dims, biased variance.
Normalized standardize(Term x, const Dims& dims, double epsilon);
// The same, times scale, plus bias; both broadcast to x. `stash`: dtype in which narrow floats are computed
// and in which mean and deviation are returned. Ba, Kiros and Hinton 2016, arXiv:1607.06450.
Normalized layer_norm(Term x, const Dims& dims, std::optional<Term> scale, std::optional<Term> bias,
                      double epsilon, DType stash = DType::kF32);
// x / sqrt(mean(x^2) + epsilon), times scale.
Term rms_norm(Term x, const Dims& dims, double epsilon, std::optional<Term> scale = {});
// rms_norm of each run of consecutive elements as long as `scale`, times scale, times the gate's sigmoid or,
// with `silu`, its silu. The gate has x's shape.
Term gated_rms_norm(Term x, Term scale, Term gate, double epsilon, bool silu);
// (x - mean) / (sqrt(variance) + 1e-9) over dims: ONNX's MeanVarianceNormalization.
Term mean_variance_norm(Term x, const Dims& dims);
// x / its Lp norm along dim, p 1 or 2; 0 for a norm of 0.
Term lp_normalize(Term x, int64_t dim, int64_t p);

// A vector over channels as a view that broadcasts with a tensor [n, channels, spatial...] of `rank`.
Term over_channels(Term v, int64_t rank);

// With the given statistics: (x - mean) / sqrt(variance + epsilon) * scale + bias, as one multiplication and
// one addition per element.
Term batch_norm(Term x, Term scale, Term bias, Term mean, Term variance, double epsilon);
// With the statistics of the batch; these are f32 or wider, the variance biased.
struct BatchStatistics {
  Term value, mean, variance;
};
BatchStatistics batch_norm_training(Term x, std::optional<Term> scale, std::optional<Term> bias,
                                    double epsilon);
// The new running statistic, running * momentum + batch * (1 - momentum), in running's dtype.
Term running_statistic(Term running, Term batch, double momentum);
// Requires that x [batch, channels, ...] has an unbiased variance.
void require_batch(Term x);
// Updates the states `mean` and `variance`, which are of x, as PyTorch does: by the unbiased variance.
void update_running_statistics(Term mean, Term variance, Term x, const BatchStatistics& batch,
                               double momentum);

// Statistics per sample and channel.
Term instance_norm(Term x, std::optional<Term> scale, std::optional<Term> bias, double epsilon);
// Statistics per sample and group of consecutive channels. Scale and bias are [channels], or [groups] with
// `per_group`. Wu and He 2018, arXiv:1803.08494.
struct GroupNormOptions {
  int64_t groups = 1;
  double epsilon = 1e-5;
  bool per_group = false;
};
Term group_norm(Term x, std::optional<Term> scale, std::optional<Term> bias, const GroupNormOptions& options);

// x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta. An even window has one
// more channel after than before.
struct LocalResponseOptions {
  int64_t size = 1;
  double alpha = 1e-4, beta = 0.75, bias = 1;
};
Term local_response_norm(Term x, const LocalResponseOptions& options);

}  // namespace stridec::ops

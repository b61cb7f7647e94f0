#include "compiler/ops/composite/normalization.h"

#include <algorithm>
#include <string>

#include "compiler/base/text.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

Term softmax(Term x, const Dims& dims) {
  const Term w = widen(x);
  const Term e = exp(w - stop_gradient(reduce_max(w, dims, kKeep)));
  return cast(as_softmax(w, e / reduce_sum(e, dims, kKeep), dims), x.dtype());
}

Term log_softmax(Term x, const Dims& dims) {
  const Term w = widen(x);
  const Term shifted = w - stop_gradient(reduce_max(w, dims, kKeep));
  return cast(shifted - log(reduce_sum(exp(shifted), dims, kKeep)), x.dtype());
}

Term hardmax(Term x, int64_t dim) {
  // An empty row gets an element to choose; the result has none of it.
  const sym::Expr missing = x.builder().simplify(sym::max(1 - x.dim(dim), 0));
  Shape after(static_cast<size_t>(x.rank()), 0);
  after[static_cast<size_t>(dim)] = missing;
  const Term best = arg_max(missing.is_const(0) ? x : pad(x, Shape(after.size(), 0), after, 0), dim);
  const Term hit = equal(index_along(x.builder(), x.shape(), dim, DType::kI64), unsqueeze(best, {dim}));
  return cast(hit, x.dtype());
}

Normalized standardize(Term x, const Dims& dims, double epsilon) {
  const Term w = widen(x);
  const Term mean = reduce_mean(w, dims, kKeep);
  const Term centered = w - mean;
  const Term inverse = rsqrt(reduce_mean(square(centered), dims, kKeep) + epsilon);
  return {cast(centered * inverse, x.dtype()), mean, inverse};
}

Normalized layer_norm(Term x, const Dims& dims, std::optional<Term> scale, std::optional<Term> bias,
                      double epsilon, DType stash) {
  const Term w = is_storage_float(x.dtype()) ? cast(x, stash) : x;
  const Normalized n = standardize(w, dims, epsilon);
  Term y = cast(n.value, x.dtype());
  if (scale) y = y * unidirectional(*scale, x.shape(), "scale");
  if (bias) y = y + unidirectional(*bias, x.shape(), "bias");
  return {y, cast(n.mean, stash), cast(n.inverse_deviation, stash)};
}

Term rms_norm(Term x, const Dims& dims, double epsilon, std::optional<Term> scale) {
  const Term w = widen(x);
  const Term y = cast(w * rsqrt(reduce_mean(square(w), dims, kKeep) + epsilon), x.dtype());
  return scale ? y * unidirectional(*scale, x.shape(), "scale") : y;
}

Term gated_rms_norm(Term given, Term given_scale, Term given_gate, double epsilon, bool silu) {
  const Term x = widen(given), scale = widen(given_scale), gate = widen(given_gate);
  Builder& b = x.builder();
  const sym::Expr each = scale.dim(0), runs = b.simplify(sym::floordiv(x.dim(x.rank() - 1), each));
  b.require(sym::eq(runs * each, x.dim(x.rank() - 1)), "rows of {0} do not divide into runs of {1}",
            {x.dim(x.rank() - 1), each});
  Shape split = x.shape();
  split.back() = runs;
  split.push_back(each);
  const Term y = reshape(rms_norm(reshape(x, split), {x.rank()}, epsilon) * scale, x.shape());
  const Term open = sigmoid(gate);
  return cast(y * (silu ? gate * open : open), given.dtype());
}

Term mean_variance_norm(Term x, const Dims& dims) {
  const Term w = widen(x);
  const Term centered = w - reduce_mean(w, dims, kKeep);
  return cast(centered / (sqrt(reduce_mean(square(centered), dims, kKeep)) + 1e-9), x.dtype());
}

Term lp_normalize(Term x, int64_t dim, int64_t p) {
  const Term w = widen(x);
  const Term norm = p == 1 ? reduce_sum(abs(w), {dim}, kKeep) : sqrt(reduce_sum(square(w), {dim}, kKeep));
  return cast(select(equal(norm, 0), 0, w / norm), x.dtype());
}

// ---- channels ----

namespace {

Dims dims_from(int64_t first, int64_t rank) {
  Dims out;
  for (int64_t d = first; d < rank; ++d) out.push_back(d);
  return out;
}

// A parameter with one element per channel of x.
Term channel_vector(Term v, Term x, const std::string& what) {
  const sym::Expr size = v.dim(0), channels = x.rank() > 1 ? x.dim(1) : sym::Expr(1);
  x.builder().require(sym::eq(size, channels), cat("the ", what, " has {0} numbers for {1} channels"),
                      {size, channels});
  return v;
}

// w * scale + bias, per channel of w.
Term channel_affine(Term w, std::optional<Term> scale, std::optional<Term> bias) {
  const auto vector = [&](Term v, const char* what) {
    return over_channels(widen(channel_vector(v, w, what)), w.rank());
  };
  if (scale) w = w * vector(*scale, "scale");
  if (bias) w = w + vector(*bias, "bias");
  return w;
}

}  // namespace

Term over_channels(Term v, int64_t rank) {
  Shape shape(static_cast<size_t>(std::max<int64_t>(rank - 1, 1)), 1);
  shape[0] = v.dim(0);
  return reshape(v, shape);
}

Term batch_norm(Term x, Term scale, Term bias, Term mean, Term variance, double epsilon) {
  const Term w = widen(x);
  const auto vector = [&](Term v, const char* what) {
    return over_channels(cast(channel_vector(v, x, what), w.dtype()), x.rank());
  };
  const Term s = vector(scale, "scale"), shift = vector(bias, "bias");
  // If the statistics are constants, scale and shift are folded.
  const Term factor = s * rsqrt(vector(variance, "variance") + epsilon);
  return cast(w * factor + (shift - vector(mean, "mean") * factor), x.dtype());
}

BatchStatistics batch_norm_training(Term x, std::optional<Term> scale, std::optional<Term> bias,
                                    double epsilon) {
  const Term w = widen(x);
  const auto vector = [&](std::optional<Term> v, const char* what) {
    return v ? std::optional(over_channels(cast(channel_vector(*v, x, what), w.dtype()), x.rank())) : v;
  };
  const std::optional<Term> s = vector(scale, "scale"), shift = vector(bias, "bias");
  Dims dims = dims_from(2, x.rank());
  dims.insert(dims.begin(), 0);
  const Term mean = reduce_mean(w, dims), centered = w - over_channels(mean, x.rank());
  const Term variance = reduce_mean(square(centered), dims);
  const Term inverse = rsqrt(over_channels(variance, x.rank()) + epsilon);
  Term y = centered * (s ? inverse * *s : inverse);
  if (shift) y = y + *shift;
  return {cast(y, x.dtype()), mean, variance};
}

void require_batch(Term x) {
  const sym::Expr samples = x.dim(0) * count(x.shape(), 2, x.rank());
  x.builder().require(sym::ge(samples, 2),
                      "a batch normalization in training needs at least 2 values of each channel, not {0}",
                      {samples});
}

void update_running_statistics(Term mean, Term variance, Term x, const BatchStatistics& batch,
                               double momentum) {
  graph::Builder& b = x.builder();
  require_batch(x);
  const Term samples = size_as(b, batch.variance.dtype(), x.dim(0) * count(x.shape(), 2, x.rank()));
  const Term unbiased = batch.variance * (samples / (samples - 1.0));
  b.add(OpKind::kUpdateState, {mean, running_statistic(mean, batch.mean, momentum)});
  b.add(OpKind::kUpdateState, {variance, running_statistic(variance, unbiased, momentum)});
}
Term running_statistic(Term running, Term batch, double momentum) {
  batch.builder().require(sym::eq(running.dim(0), batch.dim(0)),
                          "a running statistic has {0} numbers for {1} channels",
                          {running.dim(0), batch.dim(0)});
  return cast(cast(running, batch.dtype()) * momentum + batch * (1 - momentum), running.dtype());
}

Term instance_norm(Term x, std::optional<Term> scale, std::optional<Term> bias, double epsilon) {
  const auto vector = [&](std::optional<Term> v, const char* what) {
    return v ? std::optional(over_channels(channel_vector(*v, x, what), x.rank())) : v;
  };
  const std::optional<Term> s = vector(scale, "scale"), shift = vector(bias, "bias");
  Term y = standardize(widen(x), dims_from(2, x.rank()), epsilon).value;
  if (s) y = y * widen(*s);
  if (shift) y = y + widen(*shift);
  return cast(y, x.dtype());
}

Term group_norm(Term x, std::optional<Term> scale, std::optional<Term> bias,
                const GroupNormOptions& options) {
  Builder& b = x.builder();
  const int64_t groups = options.groups;
  if (groups < 1) does_not_fit(cat("group normalisation with ", groups, " groups"));
  const Term w = widen(x);
  Shape split{x.dim(0), groups, b.simplify(sym::floordiv(x.dim(1), groups))};
  b.require(sym::eq(split[2] * groups, x.dim(1)), "{0} channels do not divide into groups", {x.dim(1)});
  split.insert(split.end(), x.shape().begin() + 2, x.shape().end());
  const Term y = standardize(reshape(w, split), dims_from(2, x.rank() + 1), options.epsilon).value;
  if (options.per_group) return cast(reshape(channel_affine(y, scale, bias), x.shape()), x.dtype());
  return cast(channel_affine(reshape(y, x.shape()), scale, bias), x.dtype());
}

Term local_response_norm(Term x, const LocalResponseOptions& options) {
  const Term w = widen(x);
  const int64_t size = options.size;
  const Dims ones(x.shape().size() - 1, 1);
  Shape window(ones.begin(), ones.end()), before(window.size(), 0), after(window.size(), 0);
  window[0] = size;
  before[0] = (size - 1) / 2;
  after[0] = size - 1 - (size - 1) / 2;
  const Term sums(x.builder(), x.builder().add1(OpKind::kReduceWindow, {square(w).id()},
                                                {{"kind", std::string("sum")},
                                                 {"window", window},
                                                 {"strides", ones},
                                                 {"dilations", ones},
                                                 {"before", before},
                                                 {"after", after}}));
  const Term base = sums * (options.alpha / static_cast<double>(size)) + options.bias;
  return cast(w / pow(base, options.beta), x.dtype());
}

}  // namespace stridec::ops

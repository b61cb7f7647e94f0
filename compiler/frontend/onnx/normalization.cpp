// Batch, instance, group, layer and RMS normalisation.
#include <numeric>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Dims dims_from(int64_t first, int64_t rank) {
  Dims out;
  for (int64_t d = first; d < rank; ++d) out.push_back(d);
  return out;
}

// Reshapes a vector over channels to broadcast with [n, channels, spatial...].
Term channels(Term v, int64_t rank) {
  Shape shape(static_cast<size_t>(std::max<int64_t>(rank - 1, 1)), 1);
  shape[0] = v.dim(0);
  return reshape(v, shape);
}

// Input i, a vector with one element per channel of x.
Term channel_input(const Context& c, size_t i, Term x) {
  const sym::Expr size = c.in(i).dim(0), channels = x.rank() > 1 ? x.dim(1) : sym::Expr(1);
  c.b.require(sym::eq(size, channels), cat("input ", i, " has {0} numbers for {1} channels"),
              {size, channels});
  return c.in(i);
}

Outputs batch_norm(Context& c) {
  const Term x = c.in(0);
  const double epsilon = c.number("epsilon", 1e-5f), momentum = c.number("momentum", 0.9f);
  if (c.version < 7 && c.version >= 1 && c.integer("spatial", 1) == 0)
    c.unsupported("batch normalisation with spatial = 0 is not supported");
  const bool training = c.version >= 14
                            ? c.integer("training_mode", 0) != 0
                            : c.version < 7 && c.integer("is_test", 0) == 0 && c.node.outputs.size() > 1;
  const DType compute = is_storage_float(x.dtype()) ? DType::kF32 : x.dtype();
  const auto vector = [&](size_t i) { return channels(cast(channel_input(c, i, x), compute), x.rank()); };
  const Term w = cast(x, compute), scale = vector(1), bias = vector(2);
  if (!training) {
    // One multiplication and one addition per element. If the statistics are constants, scale and shift are
    // folded.
    const Term factor = scale * rsqrt(vector(4) + epsilon);
    return {cast(w * factor + (bias - vector(3) * factor), x.dtype())};
  }
  Dims dims = dims_from(2, x.rank());
  dims.insert(dims.begin(), 0);
  const Term mean = reduce_mean(w, dims), centered = w - channels(mean, x.rank());
  const Term variance = reduce_mean(square(centered), dims);
  const Term y = centered * rsqrt(channels(variance, x.rank()) + epsilon) * scale + bias;
  const auto running = [&](size_t i, Term now) {
    return cast(cast(channel_input(c, i, x), compute) * momentum + now * (1 - momentum), c.in(i).dtype());
  };
  return {cast(y, x.dtype()), running(3, mean), running(4, variance)};
}

Outputs instance_norm(Context& c) {
  const Term x = c.in(0);
  const auto vector = [&](size_t i) { return channels(channel_input(c, i, x), x.rank()); };
  const Term scale = vector(1), bias = vector(2);
  const Term y = standardize(widen(x), dims_from(2, x.rank()), c.number("epsilon", 1e-5f)).value;
  return {cast(y * widen(scale) + widen(bias), x.dtype())};
}

Outputs group_norm(Context& c) {
  const Term x = c.in(0), w = widen(x);
  const int64_t groups = c.integer("num_groups");
  Shape split{x.dim(0), groups, c.b.simplify(sym::floordiv(x.dim(1), groups))};
  c.b.require(sym::eq(split[2] * groups, x.dim(1)), "{0} channels do not divide into groups", {x.dim(1)});
  split.insert(split.end(), x.shape().begin() + 2, x.shape().end());
  const Term y = standardize(reshape(w, split), dims_from(2, x.rank() + 1), c.number("epsilon", 1e-5f)).value;
  if (c.version >= 21) {  // scale and bias per channel
    return {cast(reshape(y, x.shape()) * channels(widen(channel_input(c, 1, x)), x.rank()) +
                     channels(widen(channel_input(c, 2, x)), x.rank()),
                 x.dtype())};
  }
  const auto per_group = [&](size_t i) { return channels(widen(channel_input(c, i, y)), x.rank() + 1); };
  return {cast(reshape(y * per_group(1) + per_group(2), x.shape()), x.dtype())};
}

Outputs layer_norm(Context& c) {
  const Term x = c.in(0);
  const Dims dims = dims_from(c.axis(c.integer("axis", -1), x.rank()), x.rank());
  const DType stash = c.dtype("stash_type", DType::kF32);
  const Term w = is_storage_float(x.dtype()) ? cast(x, stash) : x;
  const Normalized n = standardize(w, dims, c.number("epsilon", 1e-5f));
  Term y = cast(n.value, x.dtype()) * unidirectional(c.in(1), x.shape(), "scale");
  if (c.has(2)) y = y + unidirectional(c.in(2), x.shape(), "bias");
  return {y, cast(n.mean, stash), cast(n.inverse_deviation, stash)};
}

Outputs rms_normalization(Context& c) {
  const Term x = c.in(0);
  const Dims dims = dims_from(c.axis(c.integer("axis", -1), x.rank()), x.rank());
  return {rms_norm(x, dims, c.number("epsilon", 1e-5f)) * unidirectional(c.in(1), x.shape(), "scale")};
}

Outputs mean_variance_normalization(Context& c) {
  const Term x = c.in(0), w = widen(x);
  const Dims dims = c.axes(c.integers("axes", {0, 2, 3}), x.rank());
  const Term centered = w - reduce_mean(w, dims, kKeep);
  return {cast(centered / (sqrt(reduce_mean(square(centered), dims, kKeep)) + 1e-9), x.dtype())};
}

constexpr Row kRows[] = {
    {"BatchNormalization", batch_norm},
    {"GroupNormalization", group_norm},
    {"InstanceNormalization", instance_norm},
    {"LayerNormalization", layer_norm},
    {"MeanVarianceNormalization", mean_variance_normalization},
    {"RMSNormalization", rms_normalization},
};

}  // namespace

std::span<const Row> normalization_rows() { return kRows; }

}  // namespace stridec::onnx

// Normalisations.

#include "compiler/ops/composite/normalization.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/linear_algebra.h"

namespace stridec::aten {
namespace {

using namespace ops;

// A parameter [channels], shaped to broadcast over [batch, channels, spatial...].
Term by_channel(Term p, int64_t rank) {
  Shape shape(static_cast<size_t>(rank) - 1, 1);
  shape[0] = p.dim(0);
  return reshape(p, shape);
}

// value * weight + bias in f32 or wider, rounded to the dtype of the input.
Term scaled(const Context& c, Term value, DType to, bool channels) {
  const auto parameter = [&](const char* name) {
    const Term p = cast(c.in(name), value.dtype(), false);
    return channels ? by_channel(p, value.rank()) : p;
  };
  if (c.has("weight")) value = value * parameter("weight");
  if (c.has("bias")) value = value + parameter("bias");
  return cast(value, to, false);
}

Dims last_dims(Term x, size_t n) {
  Dims out;
  for (size_t i = 0; i < n; ++i) out.push_back(x.rank() - static_cast<int64_t>(n - i));
  return out;
}

Results layer_norm(Context& c) {
  const Term x = c.in("input");
  const size_t n = c.sizes("normalized_shape").size();
  if (n == 0 || static_cast<int64_t>(n) > x.rank())
    c.does_not_fit("normalized_shape has more dims than the input");
  const Normalized s = standardize(widen(x), last_dims(x, n), c.number("eps"));
  const Term y = scaled(c, s.value, x.dtype(), false);
  return {y, s.mean, s.inverse_deviation};
}

Results rms_norm_row(Context& c) {
  const Term x = c.in("input"), w = widen(x);
  const size_t n = c.sizes("normalized_shape").size();
  // PyTorch's default is that of the dtype in which it computes: f32 for narrower ones.
  double epsilon = machine_epsilon(is_float(w.dtype()) ? w.dtype() : DType::kF32);
  if (const auto given = c.optional_number("eps")) epsilon = *given;
  Term y = ops::rms_norm(w, last_dims(x, n), epsilon);
  if (c.has("weight")) y = y * cast(c.in("weight"), y.dtype(), false);
  return {cast(y, x.dtype(), false)};
}

Results group_norm_of(Context& c, int64_t groups) {
  const Term x = c.in("input"), w = widen(x);
  if (x.rank() < 2) c.does_not_fit("group_norm takes [batch, channels, ...]");
  c.b.require(sym::eq(sym::mod(x.dim(1), groups), 0), "group_norm: {0} channels in {1} groups",
              {x.dim(1), groups});
  Shape apart{x.dim(0), groups,
              c.b.simplify(sym::floordiv(x.dim(1), groups)) * count(x.shape(), 2, x.rank())};
  const Normalized s = standardize(reshape(w, apart), {2}, c.number("eps"));
  const Term y = scaled(c, reshape(s.value, x.shape()), x.dtype(), true);
  return {y, squeeze(s.mean, {2}), squeeze(s.inverse_deviation, {2})};
}
Results group_norm(Context& c) { return group_norm_of(c, c.integer("num_groups")); }
Results native_group_norm(Context& c) { return group_norm_of(c, c.integer("group")); }

// x * scale + shift: both are constants in inference, and passes fold them into the layer before.
Term normalized_by(const Context& c, Term x, Term mean, Term variance) {
  const DType wide = compute_dtype(x.dtype());
  Term scale = rsqrt(cast(variance, wide, false) + c.number(c.names("eps") ? "eps" : "epsilon"));
  if (c.has("weight")) scale = scale * cast(c.in("weight"), wide, false);
  Term shift = -(cast(mean, wide, false) * scale);
  if (c.has("bias")) shift = shift + cast(c.in("bias"), wide, false);
  return cast(widen(x) * by_channel(scale, x.rank()) + by_channel(shift, x.rank()), x.dtype(), false);
}

struct Statistics {
  Term mean, variance, unbiased;  // [channels]
  Term centered;                  // x - mean
};
Statistics statistics(Context& c, Term x) {
  const Term w = widen(x);
  Dims dims;
  sym::Expr n = 1;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != 1) dims.push_back(d), n = n * x.dim(d);
  const Term mean = reduce_mean(w, dims, kKeep), centered = w - mean;
  const Term squares = reduce_sum(square(centered), dims);
  const Term number = cast(size_as(c.b, DType::kI64, n), w.dtype(), false);
  return {squeeze(mean, dims), squares / number, squares / (number - 1.0), centered};
}

// The running statistics move towards those of the batch.
Term moved(const Context& c, Term old, Term batch) {
  const double momentum = c.number("momentum");
  return old * (1 - momentum) + cast(batch, old.dtype(), false) * momentum;
}

struct Trained {
  Term y, mean, inverse;
};
// Deviations are scaled, since x * scale - mean * scale would cancel where the mean is large.
Trained normalize_batch(Context& c, Term x, const Statistics& s) {
  const Term inverse = rsqrt(s.variance + c.number("eps"));
  const auto wide = [&](const char* name) { return cast(c.in(name), inverse.dtype(), false); };
  Term y = s.centered * by_channel(c.has("weight") ? inverse * wide("weight") : inverse, x.rank());
  if (c.has("bias")) y = y + by_channel(wide("bias"), x.rank());
  return {cast(y, x.dtype(), false), s.mean, inverse};
}

// A row for every batch norm: running statistics are written in training.
Results batch_norm(Context& c) {
  const Term x = c.in("input");
  if (x.rank() < 2) c.does_not_fit("batch_norm takes [batch, channels, ...]");
  const bool training = (c.names("training") && c.flag("training")) || !c.has("running_mean");
  const Term none = filled(c.b, {0}, DType::kF32, 0);
  if (!training) return {normalized_by(c, x, c.in("running_mean"), c.in("running_var")), none, none};
  const Statistics s = statistics(c, x);
  if (c.has("running_mean")) {
    require_batch(x);
    const Term mean = moved(c, c.in("running_mean"), s.mean),
               variance = moved(c, c.in("running_var"), s.unbiased);
    const Trained t = normalize_batch(c, x, s);
    if (c.schema.name == "_native_batch_norm_legit_functional")
      return {t.y, t.mean, t.inverse, mean, variance};
    write(c.b, c.tensor("running_mean"), mean);
    write(c.b, c.tensor("running_var"), variance);
    return {t.y, t.mean, t.inverse};
  }
  const Trained t = normalize_batch(c, x, s);
  return {t.y, t.mean, t.inverse};
}
Results batch_norm_inference(Context& c) {
  const Term x = c.in("input"), none = filled(c.b, {0}, DType::kF32, 0);
  return {normalized_by(c, x, c.in("running_mean"), c.in("running_var")), none, none};
}

// In training whatever the module says; a fourth result is scratch memory of cuDNN.
Results batch_norm_with_update(Context& c) {
  const Term x = c.in("input");
  const Statistics s = statistics(c, x);
  const Trained t = normalize_batch(c, x, s);
  require_batch(x);
  write(c.b, c.tensor("running_mean"), moved(c, c.in("running_mean"), s.mean));
  write(c.b, c.tensor("running_var"), moved(c, c.in("running_var"), s.unbiased));
  return {t.y, t.mean, t.inverse, filled(c.b, {0}, DType::kU8, 0)};
}

Results instance_norm(Context& c) {
  const Term x = c.in("input");
  if (!c.flag("use_input_stats")) return {batch_norm_inference(c)[0]};
  if (c.has("running_mean")) {
    // The mean over the batch of the statistics of each sample.
    const Term flat = reshape(widen(x), {x.dim(0), x.dim(1), count(x.shape(), 2, x.rank())});
    const Term mean = reduce_mean(flat, {2}, kKeep), squares = reduce_sum(square(flat - mean), {2});
    const Term number = cast(size_as(c.b, DType::kI64, flat.dim(2)), flat.dtype(), false);
    write(c.b, c.tensor("running_mean"),
          moved(c, c.in("running_mean"), reduce_mean(squeeze(mean, {2}), {0})));
    write(c.b, c.tensor("running_var"),
          moved(c, c.in("running_var"), reduce_mean(squares / (number - 1.0), {0})));
  }
  Dims dims;
  for (int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  return {scaled(c, standardize(widen(x), dims, c.number("eps")).value, x.dtype(), true)};
}

// v * g / |v|, the norm over all dims but one.
Results weight_norm(Context& c) {
  const Term v = c.in("v"), g = c.in("g");
  const int64_t dim = c.integer("dim");
  Dims dims;
  for (int64_t d = 0; d < v.rank(); ++d)
    if (dim == -1 || d != normal_dim(dim, v.rank())) dims.push_back(d);
  const Term norm = sqrt(reduce_sum(square(widen(v)), dims, kKeep));
  return {cast(widen(v) * (widen(g) / norm), v.dtype(), false), norm};
}

constexpr Row kRows[] = {
    {"_batch_norm_with_update", batch_norm_with_update},
    {"_native_batch_norm_legit", batch_norm},
    {"_native_batch_norm_legit_functional", batch_norm},
    {"_native_batch_norm_legit_no_training", batch_norm_inference},
    {"_weight_norm", weight_norm},
    {"_weight_norm_interface", weight_norm},
    {"batch_norm", batch_norm},
    {"cudnn_batch_norm", batch_norm},
    {"group_norm", group_norm},
    {"instance_norm", instance_norm},
    {"layer_norm", layer_norm},
    {"native_batch_norm", batch_norm},
    {"native_group_norm", native_group_norm},
    {"native_layer_norm", layer_norm},
    {"rms_norm", rms_norm_row},
};

}  // namespace

std::span<const Row> normalization_rows() { return kRows; }

}  // namespace stridec::aten

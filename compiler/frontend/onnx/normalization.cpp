// Batch, instance, group, layer and RMS normalisation.
#include "compiler/ops/composite/normalization.h"

#include "compiler/frontend/onnx/import_rows.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// The dims from the node's axis on.
Dims dims_from_axis(const Context& c, Term x) {
  Dims out;
  for (int64_t d = c.axis(c.integer("axis", -1), x.rank()); d < x.rank(); ++d) out.push_back(d);
  return out;
}

Outputs op_batch_norm(Context& c) {
  const Term x = c.in(0);
  const double epsilon = c.number("epsilon", 1e-5f), momentum = c.number("momentum", 0.9f);
  if (c.version < 7 && c.version >= 1 && c.integer("spatial", 1) == 0)
    c.unsupported("batch normalisation with spatial = 0 is not supported");
  const bool training = c.version >= 14
                            ? c.integer("training_mode", 0) != 0
                            : c.version < 7 && c.integer("is_test", 0) == 0 && c.node.outputs.size() > 1;
  const auto replaceable = [&](size_t i) { return c.b.graph()[c.in(i)].replaceable; };
  const bool updates = !training && c.importer().training_form() && replaceable(3) && replaceable(4);
  if (!training && !updates) return {batch_norm(x, c.in(1), c.in(2), c.in(3), c.in(4), epsilon)};
  const BatchStatistics y = batch_norm_training(x, c.in(1), c.in(2), epsilon);
  if (updates) {
    update_running_statistics(c.in(3), c.in(4), x, y, momentum);
    return {y.value};
  }
  return {y.value, running_statistic(c.in(3), y.mean, momentum),
          running_statistic(c.in(4), y.variance, momentum)};
}

Outputs op_instance_norm(Context& c) {
  return {instance_norm(c.in(0), c.in(1), c.in(2), c.number("epsilon", 1e-5f))};
}

// Before version 21, scale and bias have one element per group.
Outputs op_group_norm(Context& c) {
  return {group_norm(c.in(0), c.in(1), c.in(2),
                     {.groups = c.integer("num_groups"),
                      .epsilon = c.number("epsilon", 1e-5f),
                      .per_group = c.version < 21})};
}

Outputs op_layer_norm(Context& c) {
  const Term x = c.in(0);
  const Normalized y = layer_norm(x, dims_from_axis(c, x), c.in(1), c.optional(2), c.number("epsilon", 1e-5f),
                                  c.dtype("stash_type", DType::kF32));
  return {y.value, y.mean, y.inverse_deviation};
}

Outputs op_rms_norm(Context& c) {
  const Term x = c.in(0);
  return {rms_norm(x, dims_from_axis(c, x), c.number("epsilon", 1e-5f), c.in(1))};
}

Outputs op_mean_variance_norm(Context& c) {
  return {mean_variance_norm(c.in(0), c.axes(c.integers("axes", {0, 2, 3}), c.in(0).rank()))};
}

Outputs op_lp_normalize(Context& c) {
  return {lp_normalize(c.in(0), c.axis(c.integer("axis", -1), c.in(0).rank()), c.integer("p", 2))};
}

Outputs lrn(Context& c) {
  return {local_response_norm(c.in(0), {.size = c.integer("size"),
                                        .alpha = c.number("alpha", 1e-4f),
                                        .beta = c.number("beta", 0.75),
                                        .bias = c.number("bias", 1)})};
}

constexpr Row kRows[] = {
    {"BatchNormalization", op_batch_norm},
    {"GroupNormalization", op_group_norm},
    {"InstanceNormalization", op_instance_norm},
    {"LRN", lrn},
    {"LayerNormalization", op_layer_norm},
    {"LpNormalization", op_lp_normalize},
    {"MeanVarianceNormalization", op_mean_variance_norm},
    {"RMSNormalization", op_rms_norm},
    {"SimplifiedLayerNormalization", op_rms_norm},
};

}  // namespace

std::span<const Row> normalization_rows() { return kRows; }

}  // namespace stridec::onnx

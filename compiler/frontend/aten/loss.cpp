// Loss functions.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::aten {
namespace {

using namespace ops;

Dims all_dims(Term x) {
  Dims out;
  for (int64_t d = 0; d < x.rank(); ++d) out.push_back(d);
  return out;
}

// 0 none, 1 mean, 2 sum.
Term reduced(const Context& c, Term loss) {
  const int64_t how = c.integer("reduction");
  if (how == 0 || loss.rank() == 0) return loss;
  return how == 1 ? reduce_mean(loss, all_dims(loss)) : reduce_sum(loss, all_dims(loss));
}
template <class F>
Results pairwise(Context& c, F&& f) {
  const auto [x, y] = promoted(c, "self", "target");
  return {reduced(c, f(x, y))};
}
Results mse(Context& c) {
  return pairwise(c, [](Term x, Term y) { return square(x - y); });
}
Results l1(Context& c) {
  return pairwise(c, [](Term x, Term y) { return abs(x - y); });
}
Results smooth_l1(Context& c) {
  const double beta = c.number("beta");
  return pairwise(c, [&](Term x, Term y) {
    const Term gap = abs(x - y);
    return beta == 0 ? gap : select(less(gap, beta), square(gap) * (0.5 / beta), gap - 0.5 * beta);
  });
}
Results huber(Context& c) {
  const double delta = c.number("delta");
  return pairwise(c, [&](Term x, Term y) {
    const Term gap = abs(x - y);
    return select(less_equal(gap, delta), square(gap) * 0.5, (gap - 0.5 * delta) * delta);
  });
}
Results bce_with_logits(Context& c) {
  if (c.has("weight") || c.has("pos_weight")) c.unsupported("binary cross entropy with weights");
  return pairwise(c,
                  [](Term x, Term y) { return maximum(x, 0) - x * y + apply(OpKind::kLog1p, exp(-abs(x))); });
}

// The logarithms of probabilities at the classes, [batch, ...] for x [batch, classes, ...].
Results nll(Context& c, Term logs, Term target) {
  if (c.has("weight")) c.unsupported("a loss with weights of classes");
  const int64_t how = c.integer("reduction");
  const bool single = logs.rank() == 1;
  if (single) logs = unsqueeze(logs, {0}), target = reshape(target, {1});
  const Term ignored = equal(target, static_cast<double>(c.integer("ignore_index")));
  const Term at = select(ignored, 0, target);
  const Term picked(
      c.b, c.b.add1(OpKind::kGatherElements, {logs.id(), unsqueeze(at, {1}).id()}, {{"dim", int64_t{1}}}));
  const Term loss = select(ignored, 0, -squeeze(picked, {1}));
  if (how == 0) return {single ? reshape(loss, {}) : loss};
  const Term total = reduce_sum(loss, all_dims(loss));
  const Term counted = cast(reduce_sum(cast(logical_not(ignored), DType::kI64, false), all_dims(ignored)),
                            loss.dtype(), false);
  return {how == 2 ? total : total / counted, counted};
}
Results cross_entropy(Context& c) {
  const Term x = c.in("self"), target = c.in("target");
  if (is_float(target.dtype())) c.unsupported("cross entropy with probabilities as the target");
  if (c.number("label_smoothing") != 0) c.unsupported("cross entropy with label smoothing");
  return {nll(c, log_softmax(x, {x.rank() == 1 ? 0 : 1}), target)[0]};
}
Results nll_loss(Context& c) { return nll(c, c.in("self"), c.in("target")); }

constexpr Row kRows[] = {
    {"binary_cross_entropy_with_logits", bce_with_logits},
    {"cross_entropy_loss", cross_entropy},
    {"huber_loss", huber},
    {"l1_loss", l1},
    {"mse_loss", mse},
    {"nll_loss", nll_loss},
    {"nll_loss2d", nll_loss},
    {"nll_loss2d_forward", nll_loss},
    {"nll_loss_forward", nll_loss},
    {"nll_loss_nd", nll_loss},
    {"smooth_l1_loss", smooth_l1},
};

}  // namespace

std::span<const Row> loss_rows() { return kRows; }

}  // namespace stridec::aten

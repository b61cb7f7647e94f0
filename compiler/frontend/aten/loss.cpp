// Loss functions, and distances.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/loss.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/nodes.h"

namespace stridec::aten {
namespace {

using namespace ops;

// 0 none, 1 mean, 2 sum; `to`: the dtype of the result.
Term reduced(const Context& c, Term loss, DType to) {
  const int64_t how = c.integer("reduction");
  if (how == 0 || loss.rank() == 0) return cast(loss, to, false);
  return cast(how == 1 ? reduce_mean(loss, all_dims(loss.rank())) : reduce_sum(loss, all_dims(loss.rank())),
              to, false);
}

// Of two arguments in their common dtype, in f32 or wider.
template <class F>
Results pairwise(Context& c, const char* first, const char* second, F&& f) {
  const auto [x, y] = promoted(c, first, second);
  const DType to = x.dtype();
  if (is_bool(to)) c.does_not_fit("a loss of bools");
  return {reduced(c, f(widen(x), widen(y)), to)};
}
// Losses that are floats of integers, too.
template <class F>
Results pairwise_floats(Context& c, const char* first, const char* second, F&& f) {
  const auto [x, y] = promoted_float(c, first, second);
  return {reduced(c, f(widen(x), widen(y)), x.dtype())};
}
template <class F>
Results pairwise(Context& c, F&& f) {
  return pairwise(c, "self", "target", f);
}
// An optional argument in the dtype of x.
std::optional<Term> like(const Context& c, const char* name, Term x) {
  if (!c.has(name)) return std::nullopt;
  return cast(c.in(name), x.dtype(), false);
}

Results mse(Context& c) {
  return pairwise(c, [](Term x, Term y) { return square(x - y); });
}
Results l1(Context& c) {
  return pairwise(c, [](Term x, Term y) { return abs(x - y); });
}
Results smooth_l1(Context& c) {
  return pairwise(c, [&](Term x, Term y) { return ops::smooth_l1(x - y, c.number("beta")); });
}
Results huber(Context& c) {
  return pairwise(c, [&](Term x, Term y) { return ops::huber(x - y, c.number("delta")); });
}
Results bce(Context& c) {
  return pairwise(c, [&](Term x, Term y) {
    const Term loss = binary_cross_entropy(x, y);
    const auto weight = like(c, "weight", loss);
    return weight ? loss * *weight : loss;
  });
}
Results bce_with_logits(Context& c) {
  return pairwise(c, [&](Term x, Term y) {
    const Term loss = binary_cross_entropy_of_logits(x, y, like(c, "pos_weight", x));
    const auto weight = like(c, "weight", loss);
    return weight ? loss * *weight : loss;
  });
}
Results kl_div(Context& c) {
  return pairwise(c, [&](Term x, Term y) { return kl_divergence(x, y, c.flag("log_target")); });
}
Results hinge(Context& c) {
  return pairwise(c, [&](Term x, Term y) { return hinge_embedding(x, y, c.number("margin")); });
}
Results soft(Context& c) {
  return pairwise(c, [](Term x, Term y) { return soft_margin(x, y); });
}
Results poisson(Context& c) {
  return pairwise_floats(c, "input", "target", [&](Term x, Term y) {
    return poisson_nll(x, y, c.flag("log_input"), c.flag("full"), c.number("eps"));
  });
}
Results margin_ranking(Context& c) {
  const Term y = c.in("target");
  return pairwise_floats(c, "input1", "input2", [&](Term a, Term b) {
    return relu(-(cast(y, a.dtype(), false) * (a - b)) + c.number("margin"));
  });
}
Results multi_margin_row(Context& c) {
  Term x = c.in("self"), target = c.in("target");
  const bool single = x.rank() < 2;
  if (single) x = reshape(x, {1, count(x.shape())}), target = reshape(target, {1});
  const Term w = widen(x);
  Term loss = multi_margin(w, target, c.number("p"), c.number("margin"), like(c, "weight", w));
  if (single) loss = reshape(loss, {});
  return {reduced(c, loss, x.dtype())};
}
// The classes before the first negative target are those of the sample.
Results multilabel_margin(Context& c) {
  Term x = c.in("self"), target = c.in("target");
  const bool single = x.rank() < 2;
  const Shape row{1, count(x.shape())};
  if (single) x = reshape(x, row), target = reshape(target, row);
  const Term w = widen(x), ended = cast(less(target, 0), DType::kI64, false);
  const Term valid = equal(cumulative_sum(ended, 1), 0), at = select(valid, target, 0);
  // [batch, classes of the sample, classes]
  const Term class_of = index_along(c.b, {1, 1, x.dim(1)}, 2, at.dtype());
  const Term own =
      reduce(OpKind::kReduceOr, logical_and(unsqueeze(valid, {2}), equal(unsqueeze(at, {2}), class_of)), {1});
  const Term picked = gather_elements(w, at, 1);
  const Term gap = relu(subtract_from(1, unsqueeze(picked, {2}) - unsqueeze(w, {1})));
  const Term counted = logical_and(unsqueeze(valid, {2}), logical_not(unsqueeze(own, {1})));
  Term loss = reduce_sum(select(counted, gap, 0), {1, 2}) /
              cast(size_as(c.b, DType::kI64, x.dim(1)), w.dtype(), false);
  if (single) loss = reshape(loss, {});
  const Term mine = cast(own, x.dtype(), false);
  return {reduced(c, loss, x.dtype()), single ? reshape(mine, {x.dim(1)}) : mine};
}

// x [batch, classes, ...] for x with or without a batch.
struct Batched {
  Term x;
  bool single;
};
Batched batched(Term x) { return x.rank() == 1 ? Batched{unsqueeze(x, {0}), true} : Batched{x, false}; }

Results nll(const Context& c, Term logs, Term target, DType to) {
  const Batched in = batched(logs);
  if (in.single) target = reshape(target, {1});
  const ClassLoss l = class_nll(in.x, target, like(c, "weight", logs), c.integer("ignore_index"));
  const int64_t how = c.integer("reduction");
  if (how == 0) {
    const Term each = cast(in.single ? reshape(l.loss, {}) : l.loss, to, false);
    return {each, filled(c.b, {}, to, 0)};
  }
  const Term total = reduce_sum(l.loss, all_dims(l.loss.rank())),
             weight = reduce_sum(l.weight, all_dims(l.weight.rank()));
  return {cast(how == 2 ? total : total / weight, to, false), cast(weight, to, false)};
}
Results nll_loss(Context& c) {
  const Term x = c.in("self");
  return nll(c, widen(x), c.in("target"), x.dtype());
}

// Cross entropy with the probabilities of all classes as the target: a loss for each sample.
Term soft_cross_entropy(const Context& c, Term logs, Term target) {
  const double smoothing = c.number("label_smoothing");
  const sym::Expr classes = logs.dim(1);
  Term y = cast(target, logs.dtype(), false);
  if (smoothing > 0)
    y = y * (1 - smoothing) +
        divide_into(smoothing, cast(size_as(c.b, DType::kI64, classes), y.dtype(), false));
  if (const auto weight = like(c, "weight", logs)) y = y * over_channels(*weight, y.rank());
  return -reduce_sum(logs * y, {1});
}
// Smoothing mixes in the mean loss of all classes.
Results smoothed(const Context& c, Term logs, Term target, DType to) {
  const Batched in = batched(logs);
  if (in.single) target = reshape(target, {1});
  const double smoothing = c.number("label_smoothing");
  const auto weight = like(c, "weight", logs);
  const ClassLoss own = class_nll(in.x, target, weight, c.integer("ignore_index"));
  const Term weighted = weight ? in.x * over_channels(*weight, in.x.rank()) : in.x;
  const Term ignored = equal(target, static_cast<double>(c.integer("ignore_index")));
  const Term all = select(ignored, 0, -reduce_sum(weighted, {1}));
  const Term classes = cast(size_as(c.b, DType::kI64, in.x.dim(1)), logs.dtype(), false);
  const auto mixed = [&](Term a, Term b) {
    return a * (1 - smoothing) + b * (divide_into(smoothing, classes));
  };
  const int64_t how = c.integer("reduction");
  if (how == 0) {
    const Term each = mixed(own.loss, all);
    return {cast(in.single ? reshape(each, {}) : each, to, false)};
  }
  const Term total =
      mixed(reduce_sum(own.loss, all_dims(own.loss.rank())), reduce_sum(all, all_dims(all.rank())));
  return {cast(how == 2 ? total : total / reduce_sum(own.weight, all_dims(own.weight.rank())), to, false)};
}
Results cross_entropy(Context& c) {
  const Term x = c.in("self"), target = c.in("target");
  const Term logs = log_softmax(widen(x), {x.rank() == 1 ? 0 : 1});
  if (!is_float(target.dtype())) {
    if (c.number("label_smoothing") > 0) return smoothed(c, logs, target, x.dtype());
    return {nll(c, logs, target, x.dtype())[0]};
  }
  const Batched in = batched(logs);
  const Term each = soft_cross_entropy(c, in.x, in.single ? unsqueeze(target, {0}) : target);
  const int64_t how = c.integer("reduction");
  if (how == 0) return {cast(in.single ? reshape(each, {}) : each, x.dtype(), false)};
  const Term total = reduce_sum(each, all_dims(each.rank()));
  const Term samples = cast(size_as(c.b, DType::kI64, count(each.shape())), total.dtype(), false);
  return {cast(how == 2 ? total : total / samples, x.dtype(), false)};
}

Operands broadcast_pair(const Context& c, const char* first, const char* second) {
  const auto [x, y] = promoted_float(c, first, second);
  const Shape both = (x + y).shape();
  return {expand(widen(x), both), expand(widen(y), both)};
}
Results cosine(Context& c) {
  const auto [x, y] = broadcast_pair(c, "x1", "x2");
  const DType to = promoted_float(c, "x1", "x2").x.dtype();
  return {cast(ops::cosine_similarity(x, y, c.dim("dim", x.rank()), c.number("eps")), to, false)};
}
Results pairwise_distance(Context& c) {
  const auto [x, y] = promoted_float(c, "x1", "x2");
  const Term gap = widen(x) - widen(y) + c.number("eps");
  return {cast(p_norm(gap, c.number("p"), {gap.rank() - 1}, c.flag("keepdim")), x.dtype(), false)};
}
Results cosine_embedding(Context& c) {
  const auto [x, y] = broadcast_pair(c, "input1", "input2");
  const DType to = promoted_float(c, "input1", "input2").x.dtype();
  constexpr double kEpsilon = 1e-12;
  const Dims last{x.rank() - 1};
  const Term dot = reduce_sum(x * y, last), a = reduce_sum(square(x), last) + kEpsilon,
             b = reduce_sum(square(y), last) + kEpsilon, cosine = dot / sqrt(a * b);
  const Term target = c.in("target");
  const Term far = relu(cosine - c.number("margin"));
  const Term loss =
      select(equal(target, 1), subtract_from(1, cosine), select(equal(target, -1), far, cosine * 0.0));
  return {reduced(c, loss, to)};
}
Results triplet_margin(Context& c) {
  const DType to = float_type(c.in("anchor").dtype());
  const auto in = [&](const char* name) { return widen(cast(c.in(name), to, false)); };
  const Term anchor = in("anchor"), positive = in("positive"), negative = in("negative");
  const auto distance = [&](Term x, Term y) {
    const Term gap = x - y + c.number("eps");
    return p_norm(gap, c.number("p"), {gap.rank() - 1}, false);
  };
  Term far = distance(anchor, negative);
  if (c.flag("swap")) far = minimum(far, distance(positive, negative));
  const Term loss = relu(distance(anchor, positive) - far + c.number("margin"));
  return {reduced(c, loss, to)};
}

// Distances between the rows of two matrices, and between the rows of one.
Results cdist(Context& c) {
  const Term x = c.in("x1"), y = c.in("x2");
  const Term gap = widen(unsqueeze(x, {x.rank() - 1}) - unsqueeze(y, {y.rank() - 2}));
  return {cast(p_norm(gap, c.number("p"), {gap.rank() - 1}, false), x.dtype(), false)};
}
Results pdist(Context& c) {
  const Term x = c.in("self");
  const sym::Expr n = x.dim(0);
  if (!n.is_const() || n.value() > 5'000)
    c.unsupported("pdist of a number of rows that is known only at run time, or above 5000");
  std::vector<sym::Expr> at, other;
  for (int64_t i = 0; i < n.value(); ++i)
    for (int64_t j = i + 1; j < n.value(); ++j) at.emplace_back(i), other.emplace_back(j);
  if (at.empty()) return {filled(c.b, {0}, x.dtype(), 0)};
  const Shape shape{std::ssize(at)};
  const Term rows = gather(x, Term(c.b, c.b.elements(std::move(at), shape, DType::kI64)), 0),
             others = gather(x, Term(c.b, c.b.elements(std::move(other), shape, DType::kI64)), 0);
  return {cast(p_norm(widen(rows) - widen(others), c.number("p"), {1}, false), x.dtype(), false)};
}

constexpr Row kRows[] = {
    {"_cdist_forward", cdist},
    {"_pdist_forward", pdist},
    {"binary_cross_entropy", bce},
    {"binary_cross_entropy_with_logits", bce_with_logits},
    {"cdist", cdist},
    {"cosine_embedding_loss", cosine_embedding},
    {"cosine_similarity", cosine},
    {"cross_entropy_loss", cross_entropy},
    {"hinge_embedding_loss", hinge},
    {"huber_loss", huber},
    {"kl_div", kl_div},
    {"l1_loss", l1},
    {"margin_ranking_loss", margin_ranking},
    {"mse_loss", mse},
    {"multi_margin_loss", multi_margin_row},
    {"multilabel_margin_loss", multilabel_margin},
    {"multilabel_margin_loss_forward", multilabel_margin},
    {"nll_loss", nll_loss},
    {"nll_loss2d", nll_loss},
    {"nll_loss2d_forward", nll_loss},
    {"nll_loss_forward", nll_loss},
    {"nll_loss_nd", nll_loss},
    {"pairwise_distance", pairwise_distance},
    {"pdist", pdist},
    {"poisson_nll_loss", poisson},
    {"smooth_l1_loss", smooth_l1},
    {"soft_margin_loss", soft},
    {"triplet_margin_loss", triplet_margin},
};

}  // namespace

std::span<const Row> loss_rows() { return kRows; }

}  // namespace stridec::aten

// Reductions, scans, and operators composed of them (softmax, Hardmax, LpNormalization, ...).

#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/reduction.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// Axes are an attribute in old versions and an input in later ones. No axes means all, or, if the node says
// so, that nothing is reduced.
template <Reduction along>
Outputs reduction(Context& c) {
  const Term x = c.in(0);
  const auto axes = c.axes_of(1, "axes", x.rank());
  const bool keep = c.integer("keepdims", 1) != 0;
  if (!axes || axes->at.empty())
    return {along(x, c.integer("noop_with_empty_axes", 0) ? Dims() : all_dims(x.rank()), keep)};
  return {reduce_axes(x, *axes, keep, along)};
}

template <Term (*find)(Term x, int64_t dim, bool last)>
Outputs arg(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const Term at = find(x, axis, c.integer("select_last_index", 0) != 0);
  return {c.integer("keepdims", 1) ? unsqueeze(at, {axis}) : at};
}

template <Scan kind>
Outputs scan(Context& c) {
  const Term x = c.in(0);
  const auto axes = c.axes_of(1, "axis", x.rank());
  if (!axes || axes->at.size() != 1) c.does_not_fit("axis must be one number");
  return {scan_axis(
      x, *axes,
      {.kind = kind, .exclusive = c.integer("exclusive", 0) != 0, .reverse = c.integer("reverse", 0) != 0})};
}

// Up to version 12 softmax covers all dims from the axis on, from version 13 the axis only.
Dims softmax_dims(const Context& c, Term x) {
  const int64_t axis = c.axis(c.integer("axis", c.version >= 13 ? -1 : 1), std::max<int64_t>(x.rank(), 1));
  if (c.version >= 13) return {axis};
  Dims dims;
  for (int64_t d = axis; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}
Outputs op_softmax(Context& c) { return {softmax(c.in(0), softmax_dims(c, c.in(0)))}; }
Outputs op_log_softmax(Context& c) { return {log_softmax(c.in(0), softmax_dims(c, c.in(0)))}; }

Outputs op_hardmax(Context& c) {
  const Term x = c.in(0);
  const Dims dims = softmax_dims(c, x);
  const int64_t from = dims.empty() ? 0 : dims[0];
  if (dims.size() == 1 && x.rank() > 0) return {hardmax(x, from)};
  Shape flat(x.shape().begin(), x.shape().begin() + from);
  flat.push_back(count(x.shape(), from, x.rank()));
  return {reshape(hardmax(reshape(x, flat), from), x.shape())};
}

Outputs op_top_k(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  sym::Expr k = c.integer("k", 0);
  if (c.version >= 10) k = c.size_of(1, "k", 0, x.dim(axis));
  const Ordered out = top_k(x, axis, k, c.integer("largest", 1) != 0, c.integer("sorted", 1) != 0);
  return {out.values, out.indices};
}

constexpr Row kRows[] = {
    {"ArgMax", arg<arg_max>},
    {"ArgMin", arg<arg_min>},
    {"CumProd", scan<Scan::kProduct>},
    {"CumSum", scan<Scan::kSum>},
    {"Hardmax", op_hardmax},
    {"LogSoftmax", op_log_softmax},
    {"ReduceL1", reduction<l1_norm>},
    {"ReduceL2", reduction<l2_norm>},
    {"ReduceLogSum", reduction<log_sum>},
    {"ReduceLogSumExp", reduction<log_sum_exp>},
    {"ReduceMax", reduction<max_along>},
    {"ReduceMean", reduction<mean_along>},
    {"ReduceMin", reduction<min_along>},
    {"ReduceProd", reduction<product_along>},
    {"ReduceSum", reduction<reduce_sum>},
    {"ReduceSumSquare", reduction<sum_square>},
    {"Softmax", op_softmax},
    {"TopK", op_top_k},
};

}  // namespace

std::span<const Row> reduction_rows() { return kRows; }

}  // namespace stridec::onnx

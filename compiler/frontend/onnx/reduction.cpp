// Reductions, scans, and what is made of them.
#include <numeric>

#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Dims all_dims(int64_t rank) {
  Dims out(static_cast<size_t>(rank));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// Axes are an attribute before `input_since` and an input from then on; none means all, or nothing to do
// where the node says so.
struct ReduceArguments {
  Term x;
  Dims dims;
  bool keep;
};
ReduceArguments arguments(const Context& c, int input_since) {
  const Term x = c.in(0);
  std::optional<Dims> dims = c.version >= input_since ? c.axes_of(1, "axes", x.rank()) : std::nullopt;
  if (c.version < input_since && c.has_attribute("axes")) dims = c.axes(c.integers("axes"), x.rank());
  if (!dims || dims->empty()) dims = c.integer("noop_with_empty_axes", 0) ? Dims() : all_dims(x.rank());
  std::sort(dims->begin(), dims->end());
  return {x, *dims, c.integer("keepdims", 1) != 0};
}

template <OpKind kind, int input_since>
Outputs plain(Context& c) {
  auto [x, dims, keep] = arguments(c, input_since);
  // The logical forms of bool tensors (max is or, min is and).
  if (is_bool(x.dtype()))
    return {reduce(kind == OpKind::kReduceMax ? OpKind::kReduceOr : OpKind::kReduceAnd, x, dims, keep)};
  return {reduce(kind, x, dims, keep)};
}

Outputs reduce_sum_13(Context& c) {
  auto [x, dims, keep] = arguments(c, 13);
  return {reduce_sum(x, dims, keep)};
}
Outputs op_reduce_mean(Context& c) {
  auto [x, dims, keep] = arguments(c, 18);
  const Term mean = reduce_mean(widen(x), dims, keep);
  return {cast(mean, x.dtype())};
}
Outputs reduce_l1(Context& c) {
  auto [x, dims, keep] = arguments(c, 18);
  return {reduce_sum(abs(x), dims, keep)};
}
Outputs reduce_l2(Context& c) {
  auto [x, dims, keep] = arguments(c, 18);
  const Term w = is_float(x.dtype()) ? widen(x) : cast(x, DType::kF64);
  return {cast(sqrt(reduce_sum(square(w), dims, keep)), x.dtype())};
}
Outputs reduce_log_sum(Context& c) {
  auto [x, dims, keep] = arguments(c, 18);
  const Term w = is_float(x.dtype()) ? widen(x) : cast(x, DType::kF64);
  return {cast(log(reduce_sum(w, dims, keep)), x.dtype())};
}
Outputs reduce_log_sum_exp(Context& c) {
  auto [x, dims, keep] = arguments(c, 18);
  const Term w = is_float(x.dtype()) ? widen(x) : cast(x, DType::kF64);
  if (dims.empty()) return {x};
  // Shifted by the maximum, where that is finite.
  const Term top = reduce_max(w, dims, kKeep);
  const Term shift = select(apply(OpKind::kIsInf, top), 0, top);
  const Term sum = log(reduce_sum(exp(w - shift), dims, kKeep)) + shift;
  return {cast(keep ? sum : squeeze(sum, dims), x.dtype())};
}
Outputs reduce_sum_square(Context& c) {
  auto [x, dims, keep] = arguments(c, 18);
  return {reduce_sum(square(x), dims, keep)};
}

template <OpKind kind>
Outputs arg(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  Term out(c.b, c.b.add1(kind, {x.id()}, {{"dim", axis}, {"last", c.integer("select_last_index", 0)}}));
  if (c.integer("keepdims", 1)) out = unsqueeze(out, {axis});
  return {out};
}

template <OpKind kind>
Outputs scan(Context& c) {
  const Term x = c.in(0);
  const Dims given = c.integers_of(1, "axis");
  if (given.size() != 1) c.does_not_fit("axis must be one number");
  const int64_t axis = c.axis(given[0], x.rank());
  return {Term(c.b, c.b.add1(kind, {x.id()},
                             {{"dim", axis},
                              {"exclusive", c.integer("exclusive", 0)},
                              {"reverse", c.integer("reverse", 0)}}))};
}

// Up to version 12 all dims from the axis on are one; from 13 on the axis stands alone.
Dims softmax_dims(const Context& c, Term x) {
  const int64_t axis = c.axis(c.integer("axis", c.version >= 13 ? -1 : 1), std::max<int64_t>(x.rank(), 1));
  if (c.version >= 13) return {axis};
  Dims dims;
  for (int64_t d = axis; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}
Outputs op_softmax(Context& c) { return {softmax(c.in(0), softmax_dims(c, c.in(0)))}; }
Outputs op_log_softmax(Context& c) { return {log_softmax(c.in(0), softmax_dims(c, c.in(0)))}; }

Outputs hardmax(Context& c) {
  const Term x = c.in(0);
  const Dims dims = softmax_dims(c, x);
  Shape shape = x.shape();
  const auto from = static_cast<size_t>(dims[0]);
  const bool flat = dims.size() > 1;
  if (flat) {
    shape.resize(from);
    shape.push_back(count(x.shape(), dims[0], x.rank()));
  }
  const Term rows = flat ? reshape(x, shape) : x;
  const Term best(c.b, c.b.add1(OpKind::kArgMax, {rows.id()}, {{"dim", dims[0]}, {"last", int64_t{0}}}));
  const Term hit = equal(index_along(c.b, rows.shape(), dims[0], DType::kI64), unsqueeze(best, {dims[0]}));
  const Term out = cast(hit, x.dtype());
  return {flat ? reshape(out, x.shape()) : out};
}

Outputs top_k(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  sym::Expr k = c.integer("k", 0);
  if (c.version >= 10) {
    const auto given = c.sizes_of(1, "k", 0, x.dim(axis));
    if (given.size() != 1) c.does_not_fit("k must be one number");
    k = given[0];
  }
  const auto out = c.b.add(
      OpKind::kTopK, {x.id()},
      {{"dim", axis}, {"k", k}, {"largest", c.integer("largest", 1)}, {"sorted", c.integer("sorted", 1)}});
  return {Term(c.b, out[0]), Term(c.b, out[1])};
}

Outputs lp_normalization(Context& c) {
  const Term x = c.in(0), w = widen(x);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  const Term norm =
      c.integer("p", 2) == 1 ? reduce_sum(abs(w), {axis}, kKeep) : sqrt(reduce_sum(square(w), {axis}, kKeep));
  return {cast(select(equal(norm, 0), 0, w / norm), x.dtype())};
}

constexpr Row kRows[] = {
    {"ArgMax", arg<OpKind::kArgMax>},
    {"ArgMin", arg<OpKind::kArgMin>},
    {"CumProd", scan<OpKind::kCumProd>},
    {"CumSum", scan<OpKind::kCumSum>},
    {"Hardmax", hardmax},
    {"LogSoftmax", op_log_softmax},
    {"LpNormalization", lp_normalization},
    {"ReduceL1", reduce_l1},
    {"ReduceL2", reduce_l2},
    {"ReduceLogSum", reduce_log_sum},
    {"ReduceLogSumExp", reduce_log_sum_exp},
    {"ReduceMax", plain<OpKind::kReduceMax, 18>},
    {"ReduceMean", op_reduce_mean},
    {"ReduceMin", plain<OpKind::kReduceMin, 18>},
    {"ReduceProd", plain<OpKind::kReduceProd, 18>},
    {"ReduceSum", reduce_sum_13},
    {"ReduceSumSquare", reduce_sum_square},
    {"Softmax", op_softmax},
    {"TopK", top_k},
};

}  // namespace

std::span<const Row> reduction_rows() { return kRows; }

}  // namespace stridec::onnx

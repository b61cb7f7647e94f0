// Reductions, scans, and operators composed of them (softmax, Hardmax, LpNormalization, ...).
#include <numeric>

#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Dims all_dims(int64_t rank) {
  Dims out(static_cast<size_t>(rank));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// A reduction along known dims; x has at least one dim.
using Along = Term (*)(Term x, const Dims& dims, bool keep);

// Axes are an attribute in old versions and an input in later ones. No axes means all, or, if the node says
// so, that nothing is reduced.
template <Along along>
Outputs reduction(Context& c) {
  const Term x = c.in(0);
  const auto axes = c.axes_of(1, "axes", x.rank());
  const bool keep = c.integer("keepdims", 1) != 0;
  if (!axes || axes->at.empty())
    return {along(x, c.integer("noop_with_empty_axes", 0) ? Dims() : all_dims(x.rank()), keep)};
  if (std::optional<Dims> dims = axes->known()) {
    std::sort(dims->begin(), dims->end());
    return {along(x, *dims, keep)};
  }
  Dims taken;
  for (int64_t d = 0; d < x.rank(); ++d) taken.push_back(d + x.rank());
  const Term reduced = along(apart(x, *axes), taken, false);
  return {keep ? reduced : reshape(reduced, named(c.b, without(x.shape(), *axes), "size"))};
}

template <OpKind kind>
Term plain(Term x, const Dims& dims, bool keep) {
  // Bool tensors use logical reductions: max is or, min is and.
  if (is_bool(x.dtype()))
    return reduce(kind == OpKind::kReduceMax ? OpKind::kReduceOr : OpKind::kReduceAnd, x, dims, keep);
  return reduce(kind, x, dims, keep);
}

Term mean_along(Term x, const Dims& dims, bool keep) {
  return cast(reduce_mean(widen(x), dims, keep), x.dtype());
}
Term l1(Term x, const Dims& dims, bool keep) { return reduce_sum(abs(x), dims, keep); }
Term widest(Term x) { return is_float(x.dtype()) ? widen(x) : cast(x, DType::kF64); }
Term l2(Term x, const Dims& dims, bool keep) {
  return cast(sqrt(reduce_sum(square(widest(x)), dims, keep)), x.dtype());
}
Term log_sum(Term x, const Dims& dims, bool keep) {
  return cast(log(reduce_sum(widest(x), dims, keep)), x.dtype());
}
Term log_sum_exp(Term x, const Dims& dims, bool keep) {
  if (dims.empty()) return x;
  // Subtract the maximum if it is finite.
  const Term w = widest(x), top = reduce_max(w, dims, kKeep);
  const Term shift = select(apply(OpKind::kIsInf, top), 0, top);
  const Term sum = log(reduce_sum(exp(w - shift), dims, kKeep)) + shift;
  return cast(keep ? sum : squeeze(sum, dims), x.dtype());
}
Term sum_square(Term x, const Dims& dims, bool keep) { return reduce_sum(square(x), dims, keep); }

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
  const auto axes = c.axes_of(1, "axis", x.rank());
  if (!axes || axes->at.size() != 1) c.does_not_fit("axis must be one number");
  const auto along = [&](Term t, int64_t dim) {
    return Term(c.b, c.b.add1(kind, {t.id()},
                              {{"dim", dim},
                               {"exclusive", c.integer("exclusive", 0)},
                               {"reverse", c.integer("reverse", 0)}}));
  };
  if (const auto known = axes->known()) return {along(x, known->at(0))};
  const Term parts = apart(x, *axes);
  Shape rows(parts.shape().begin(), parts.shape().begin() + x.rank());
  rows.push_back(axes->pick_size(x.shape()));
  return {together(reshape(along(reshape(parts, rows), x.rank()), parts.shape()), *axes)};
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

Outputs hardmax(Context& c) {
  const Term x = c.in(0);
  const Dims dims = softmax_dims(c, x);
  Shape shape = x.shape();
  const int64_t from = dims.empty() ? 0 : dims[0];
  const bool flat = dims.size() != 1 || x.rank() == 0;
  if (flat) {
    shape.resize(static_cast<size_t>(from));
    shape.push_back(count(x.shape(), from, x.rank()));
  }
  const Term rows = flat ? reshape(x, shape) : x;
  const Term best(c.b, c.b.add1(OpKind::kArgMax, {rows.id()}, {{"dim", from}, {"last", int64_t{0}}}));
  const Term hit = equal(index_along(c.b, rows.shape(), from, DType::kI64), unsqueeze(best, {from}));
  const Term out = cast(hit, x.dtype());
  return {flat ? reshape(out, x.shape()) : out};
}

Outputs top_k(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  sym::Expr k = c.integer("k", 0);
  if (c.version >= 10) k = c.size_of(1, "k", 0, x.dim(axis));
  const auto out = c.b.add(
      OpKind::kTopK, {x.id()},
      {{"dim", axis}, {"k", k}, {"largest", c.integer("largest", 1)}, {"sorted", c.integer("sorted", 1)}});
  return {Term(c.b, out[0]), Term(c.b, out[1])};
}

constexpr Row kRows[] = {
    {"ArgMax", arg<OpKind::kArgMax>},
    {"ArgMin", arg<OpKind::kArgMin>},
    {"CumProd", scan<OpKind::kCumProd>},
    {"CumSum", scan<OpKind::kCumSum>},
    {"Hardmax", hardmax},
    {"LogSoftmax", op_log_softmax},
    {"ReduceL1", reduction<l1>},
    {"ReduceL2", reduction<l2>},
    {"ReduceLogSum", reduction<log_sum>},
    {"ReduceLogSumExp", reduction<log_sum_exp>},
    {"ReduceMax", reduction<plain<OpKind::kReduceMax>>},
    {"ReduceMean", reduction<mean_along>},
    {"ReduceMin", reduction<plain<OpKind::kReduceMin>>},
    {"ReduceProd", reduction<plain<OpKind::kReduceProd>>},
    {"ReduceSum", reduction<reduce_sum>},
    {"ReduceSumSquare", reduction<sum_square>},
    {"Softmax", op_softmax},
    {"TopK", top_k},
};

}  // namespace

std::span<const Row> reduction_rows() { return kRows; }

}  // namespace stridec::onnx

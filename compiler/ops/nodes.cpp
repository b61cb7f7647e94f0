#include "compiler/ops/nodes.h"

#include <utility>

#include "compiler/ops/call.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

Term scan(OpKind kind, Term x, int64_t dim, bool exclusive, bool reverse) {
  return {x.builder(),
          x.builder().add1(kind, {x.id()},
                           {{"dim", dim}, {"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}})};
}

Term arg(OpKind kind, Term x, int64_t dim, bool last) {
  return {x.builder(), x.builder().add1(kind, {x.id()}, {{"dim", dim}, {"last", int64_t{last}}})};
}

graph::Attributes along(int64_t dim, Negative negative) {
  graph::Attributes attributes = {{"dim", dim}};
  if (negative == Negative::kError) attributes.set("wrap", int64_t{0});
  return attributes;
}

}  // namespace

// ---- indexing ----

Term gather_elements(Term data, Term indices, int64_t dim, Negative negative) {
  Builder& b = data.builder();
  return {b, b.add1(OpKind::kGatherElements, {data.id(), indices.id()}, along(dim, negative))};
}

Term gather_nd(Term data, Term indices, int64_t batch_dims) {
  Builder& b = data.builder();
  return {b, b.add1(OpKind::kGatherNd, {data.id(), indices.id()}, {{"batch_dims", batch_dims}})};
}

Term scatter_elements(Term data, Term indices, Term updates, int64_t dim, const std::string& reduction,
                      Negative negative) {
  Builder& b = data.builder();
  graph::Attributes attributes = along(dim, negative);
  attributes.set("reduction", reduction);
  return {b,
          b.add1(OpKind::kScatterElements, {data.id(), indices.id(), updates.id()}, std::move(attributes))};
}

Term scatter_nd(Term data, Term indices, Term updates, const std::string& reduction) {
  Builder& b = data.builder();
  return {b, b.add1(OpKind::kScatterNd, {data.id(), indices.id(), updates.id()}, {{"reduction", reduction}})};
}

Term search_sorted(Term sorted, Term x, bool right) {
  graph::Attributes attributes;
  if (right) attributes.set("right", int64_t{1});
  return {x.builder(), x.builder().add1(OpKind::kSearchSorted, {sorted.id(), x.id()}, std::move(attributes))};
}

Term coordinates(Term truth, sym::Expr count) {
  return {truth.builder(), truth.builder().add1(OpKind::kNonZero, {truth.id()}, {{"count", count}})};
}

// ---- scans and order ----

Term cumulative_sum(Term x, int64_t dim, bool exclusive, bool reverse) {
  return scan(OpKind::kCumSum, x, dim, exclusive, reverse);
}
Term cumulative_product(Term x, int64_t dim, bool exclusive, bool reverse) {
  return scan(OpKind::kCumProd, x, dim, exclusive, reverse);
}

Term linear_scan(Term a, Term b, int64_t dim, bool reverse) {
  return {a.builder(), a.builder().add1(OpKind::kLinearScan, {a.id(), b.id()},
                                        {{"dim", dim}, {"reverse", int64_t{reverse}}})};
}

Term shifted(Term x, int64_t dim, int64_t places) {
  Shape before(static_cast<size_t>(x.rank()), 0), after = before;
  before[static_cast<size_t>(dim)] = places;
  after[static_cast<size_t>(dim)] = -places;
  return pad(x, before, after, 0);
}

Term arg_max(Term x, int64_t dim, bool last) { return arg(OpKind::kArgMax, x, dim, last); }
Term arg_min(Term x, int64_t dim, bool last) { return arg(OpKind::kArgMin, x, dim, last); }

Ordered sort(Term x, int64_t dim, bool descending) {
  Builder& b = x.builder();
  graph::Attributes attributes{{"dim", dim}};
  if (descending) attributes.set("descending", int64_t{1});
  const auto out = b.add(OpKind::kSort, {x.id()}, std::move(attributes));
  return {Term(b, out[0]), Term(b, out[1])};
}

Ordered top_k(Term x, int64_t dim, sym::Expr k, bool largest, bool sorted) {
  Builder& b = x.builder();
  const auto out =
      b.add(OpKind::kTopK, {x.id()},
            {{"dim", dim}, {"k", k}, {"largest", int64_t{largest}}, {"sorted", int64_t{sorted}}});
  return {Term(b, out[0]), Term(b, out[1])};
}

// ---- views ----

Term slice_dims(Term x, const Shape& starts, const Shape& extents, const Shape& steps) {
  return {x.builder(), x.builder().add1(OpKind::kSlice, {x.id()},
                                        {{"starts", starts}, {"extents", extents}, {"steps", steps}})};
}

Term pad(Term x, const Shape& before, const Shape& after, Term value, const std::string& mode) {
  return {x.builder(), pad(x.builder(), x, before, after, value.id(), mode)};
}

Term bitcast(Term x, DType to) {
  return {x.builder(), x.builder().add1(OpKind::kBitcast, {x.id()}, {{"to", to}})};
}

// ---- sources ----

Term random_uniform(Builder& b, const Shape& shape, DType dtype, int64_t seed, const std::string& generator) {
  graph::Attributes attributes{{"shape", shape}, {"dtype", dtype}, {"seed", seed}};
  if (!generator.empty()) attributes.set("generator", generator);
  return {b, b.add1(OpKind::kRandomUniform, {}, std::move(attributes))};
}

// ---- routines ----

Term suppress(Term corners, Term eligible, Term most, Term overlap) {
  Builder& b = corners.builder();
  return {b, add_call(b, "suppress", {corners, eligible, most, overlap})[0]};
}

}  // namespace stridec::ops

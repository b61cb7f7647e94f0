#include "compiler/ops/composite/pooling.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <unordered_set>

#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

Term reduce_window(Term x, const Window& window, const char* kind) {
  graph::Attributes attributes = window.attributes();
  attributes.set("kind", std::string(kind));
  return {x.builder(), x.builder().add1(OpKind::kReduceWindow, {x.id()}, std::move(attributes))};
}

Dims spatial_dims(Term x) {
  Dims out(static_cast<size_t>(std::max<int64_t>(x.rank() - 2, 0)));
  std::iota(out.begin(), out.end(), 2);
  return out;
}

}  // namespace

Term max_pool(Term x, const Window& window) { return reduce_window(x, window, "max"); }

Term max_pool_positions(Term x, const Window& window) {
  return {x.builder(), x.builder().add1(OpKind::kWindowArgMax, {x.id()}, window.attributes())};
}

Term column_major_positions(Term positions, const Shape& spatial) {
  Builder& b = positions.builder();
  Term rest = positions, swapped = number_like(positions, 0);
  for (size_t i = spatial.size(); i-- > 0;) {
    const Term extent = size_as(b, DType::kI64, spatial[i]);
    swapped = swapped + apply(OpKind::kMod, rest, extent) *
                            size_as(b, DType::kI64, count(spatial, 0, static_cast<int64_t>(i)));
    rest = rest / extent;
  }
  return swapped;
}

Term tensor_positions(Term positions, sym::Expr plane) {
  Builder& b = positions.builder();
  Shape lead(positions.shape().size(), 1);
  lead[0] = positions.dim(0);
  lead[1] = positions.dim(1);
  const Term image = index_along(b, lead, 0, DType::kI64) * size_as(b, DType::kI64, positions.dim(1)) +
                     index_along(b, lead, 1, DType::kI64);
  return positions + image * size_as(b, DType::kI64, plane);
}

Term average_pool(Term x, const Window& window, bool count_padding) {
  graph::Attributes attributes = window.attributes();
  attributes.set("count_include_pad", int64_t{count_padding});
  return {x.builder(), x.builder().add1(OpKind::kAveragePool, {x.id()}, std::move(attributes))};
}

// ---- Lp ----

namespace {

Term power_root(Term x, double p, const std::function<Term(Term)>& sum) {
  const Term w = abs(widen(x));
  if (p == 1) return cast(sum(w), x.dtype());
  if (p == 2) return cast(sqrt(sum(square(w))), x.dtype());
  return cast(pow(sum(pow(w, p)), 1 / p), x.dtype());
}

}  // namespace

Term lp_pool(Term x, const Window& window, double p) {
  return power_root(x, p, [&](Term t) { return reduce_window(t, window, "sum"); });
}

Term global_lp_pool(Term x, double p) {
  return power_root(x, p, [&](Term t) { return reduce_sum(t, spatial_dims(x), kKeep); });
}

Term global_average_pool(Term x) { return cast(reduce_mean(widen(x), spatial_dims(x), kKeep), x.dtype()); }
Term global_max_pool(Term x) { return reduce_max(x, spatial_dims(x), kKeep); }

// ---- unpooling ----

namespace {

// Whether the integers are computed from a max_pool's positions by integer operators only.
bool from_max_pool(const graph::Graph& graph, ValueId value) {
  std::vector<ValueId> open{value};
  std::unordered_set<ValueId> seen;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (!id.valid() || !is_integer(graph[id].type.dtype) || !seen.insert(id).second) continue;
    if (!graph[id].producer.valid()) continue;
    const graph::Node& node = graph[graph[id].producer];
    if (node.kind == OpKind::kWindowArgMax) return true;
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return false;
}

// Converts flat indices into a tensor of shape `from` to flat indices of the same positions in shape `to`.
Term moved_index(Term at, const Shape& from, const Shape& to) {
  Builder& b = at.builder();
  size_t same = 0;  // dims before the first that differs
  while (same < from.size() && from[same] == to[same]) ++same;
  if (same == from.size()) return at;
  Term rest = at, out = number_like(at, 0);
  for (size_t d = from.size(); d-- > same;) {
    const Term extent = size_as(b, at.dtype(), from[d]);
    const sym::Expr stride = count(to, static_cast<int64_t>(d) + 1, static_cast<int64_t>(to.size()));
    out = out + apply(OpKind::kMod, rest, extent) * size_as(b, at.dtype(), stride);
    rest = rest / extent;
  }
  return out + rest * size_as(b, at.dtype(), count(to, static_cast<int64_t>(same), std::ssize(to)));
}

// The shape that the indices refer to, given a wanted shape.
Shape index_space(Term indices, const Shape& inferred, const Shape& wanted) {
  Builder& b = indices.builder();
  if (from_max_pool(b.graph(), indices)) return wanted;
  sym::Expr padded = 1;
  for (size_t d = 0; d < wanted.size(); ++d)
    padded = sym::logical_and(padded, sym::ge(wanted[d], inferred[d]));
  Shape space;
  for (size_t d = 0; d < wanted.size(); ++d)
    space.push_back(b.simplify(sym::select(padded, inferred[d], wanted[d])));
  return space;
}

}  // namespace

Term max_unpool(Term x, Term indices, const Window& window, const std::optional<Shape>& wanted) {
  Builder& b = x.builder();
  if (indices.rank() != x.rank())
    does_not_fit(cat("indices of rank ", indices.rank(), " for values of rank ", x.rank()));
  Shape shape = x.shape();
  for (size_t d = 0; d < shape.size(); ++d)
    b.require(sym::eq(indices.shape()[d], shape[d]), cat("dim ", d, ": {0} indices for {1} values"),
              {indices.shape()[d], shape[d]});
  for (size_t i = 0; i < window.size.size(); ++i)
    shape[i + 2] = b.simplify((shape[i + 2] - 1) * window.strides[i] + window.size[i] - window.before[i] -
                              window.after[i]);
  // Unsigned, so that a negative index is an error instead of counting from the end.
  Term at = cast(reshape(indices, {count(x.shape())}), DType::kU64);
  if (wanted) {
    if (wanted->size() != shape.size())
      does_not_fit(cat("output_shape has ", wanted->size(), " values for an input of rank ", shape.size()));
    for (size_t d = 0; d < 2; ++d)
      b.require(sym::eq((*wanted)[d], shape[d]), cat("dim ", d, " of output_shape is {0}, of the values {1}"),
                {(*wanted)[d], shape[d]});
    at = moved_index(at, index_space(indices, shape, *wanted), *wanted);
    shape = *wanted;
  }
  const Term zeros = filled(b, {count(shape)}, x.dtype(), 0), values = reshape(x, {count(x.shape())});
  return reshape(scatter_elements(zeros, at, values, 0), shape);
}

}  // namespace stridec::ops

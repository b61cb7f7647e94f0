#include "compiler/ops/linear_sum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/ops/helpers.h"
#include "compiler/ops/tables.h"

namespace stridec::ops {
namespace {

using graph::Node;
using graph::OpKind;

constexpr int kDeepest = 8;  // nodes on a path from the sum to the deviations

const Node* producer_of(Term term) {
  const graph::Graph& g = term.builder().graph();
  const graph::NodeId id = g[term.id()].producer;
  return id.valid() ? &g[id] : nullptr;
}

Term input_of(Term term, const Node& node, size_t i) { return {term.builder(), node.inputs[i]}; }

// The value before reshapes and expansions.
Term origin_of(Term term) {
  const Node* node = producer_of(term);
  while (node && (node->kind == OpKind::kReshape || node->kind == OpKind::kExpand)) {
    term = input_of(term, *node, 0);
    node = producer_of(term);
  }
  return term;
}

// Whether the term, broadcast to `rank` dims, has extent 1 along `dims`.
bool is_one_along(Term term, const Dims& dims, int64_t rank) {
  return std::ranges::all_of(dims, [&](int64_t d) {
    const int64_t at = d - (rank - term.rank());
    return at < 0 || term.dim(at).is_const(1);
  });
}

bool is_constant_along(Term term, const Dims& dims, int64_t rank) {
  if (is_one_along(term, dims, rank)) return true;
  const Node* node = producer_of(term);
  return node && node->kind == OpKind::kExpand && is_constant_along(input_of(term, *node, 0), dims, rank);
}

// Whether the term is the number `count` of elements, a constant or a size as a float.
bool is_count(Term term, sym::Expr count) {
  if (const auto number = known_number(term)) return count.is_const() && *number == double(count.value());
  const Node* node = producer_of(term);
  if (!node || node->kind != OpKind::kCast) return false;
  const auto known = term.builder().known(node->inputs[0]);
  return known && known->size() == 1 && (*known)[0] == count;
}

bool is_inverse_count(Term term, sym::Expr count) {
  constexpr double kRounding = 1e-6;
  const auto number = known_number(term);
  return number && count.is_const() && std::fabs(*number * double(count.value()) - 1) < kRounding;
}

// Whether `mean` is the mean of x over `dims`, with these dims as extents of 1 or left out at the front.
bool is_mean(Term mean, Term x, const Dims& dims) {
  const Term from = origin_of(mean);
  const Node* scaled = producer_of(from);
  if (!scaled || scaled->inputs.size() != 2) return false;
  const Term sum = origin_of(input_of(from, *scaled, 0)), number = input_of(from, *scaled, 1);
  const Node* reduced = producer_of(sum);
  if (!reduced || reduced->kind != OpKind::kReduceSum || reduced->inputs[0] != x.id()) return false;
  Dims summed = reduced->attributes.integers("dims"), wanted = dims;
  std::ranges::sort(summed);
  std::ranges::sort(wanted);
  sym::Expr count = 1;
  for (int64_t d : dims) count *= x.dim(d);
  if (summed != wanted || !(scaled->kind == OpKind::kMul   ? is_inverse_count(number, count)
                            : scaled->kind == OpKind::kDiv ? is_count(number, count)
                                                           : false))
    return false;
  const int64_t lead = x.rank() - mean.rank();
  for (int64_t d = 0; d < x.rank(); ++d) {
    const bool left_out = std::ranges::count(dims, d) > 0;
    if (d < lead ? !left_out : mean.dim(d - lead) != (left_out ? sym::Expr(1) : x.dim(d))) return false;
  }
  return lead >= 0;
}

bool is_zero_sum(Term term, const Dims& dims, const graph::Shape& shape, int deep) {
  const Node* node = producer_of(term);
  if (!node || deep == kDeepest || term.shape() != shape) return false;
  const auto zero = [&](size_t i) { return is_zero_sum(input_of(term, *node, i), dims, shape, deep + 1); };
  const auto fixed = [&](size_t i) { return is_constant_along(input_of(term, *node, i), dims, term.rank()); };
  switch (node->kind) {
    case OpKind::kNeg: return zero(0);
    case OpKind::kAdd: return zero(0) && zero(1);
    case OpKind::kSub: {
      const Term x = input_of(term, *node, 0);
      return (x.shape() == shape && is_mean(input_of(term, *node, 1), x, dims)) || (zero(0) && zero(1));
    }
    case OpKind::kMul: return (fixed(0) && zero(1)) || (fixed(1) && zero(0));
    case OpKind::kDiv: return fixed(1) && zero(0);
    default: return false;
  }
}

// The factor before it was expanded along `dims`.
Term narrow_factor(Term term, const Dims& dims, int64_t rank) {
  while (!is_one_along(term, dims, rank)) term = input_of(term, *producer_of(term), 0);
  return term;
}

// Whether the term is 0, 1, ... along `dim` of a tensor of this shape, and does not vary along others.
bool is_index_along(Term term, int64_t dim, const graph::Shape& shape) {
  const Node* node = producer_of(term);
  const int64_t at = dim - (static_cast<int64_t>(shape.size()) - term.rank());
  if (!node || at < 0 || is_float(term.dtype()) || term.dim(at) != shape[static_cast<size_t>(dim)])
    return false;
  if (node->kind == OpKind::kIota) return node->attributes.integer("dim") == at;
  const auto known = term.builder().known(term.id());
  if (!known || term.dim(at) != sym::Expr(static_cast<int64_t>(known->size()))) return false;
  for (size_t i = 0; i < known->size(); ++i)
    if ((*known)[i] != sym::Expr(static_cast<int64_t>(i))) return false;
  return true;
}

// The index k along `dim` where `condition` holds, with extent 1 there, if it is i == k for indices i along
// `dim`: as of a one-hot row.
std::optional<Term> index_where(Term condition, int64_t dim, const graph::Shape& shape) {
  const Node* node = producer_of(condition);
  if (!node || node->kind != OpKind::kEq) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Term along = input_of(condition, *node, i), at = input_of(condition, *node, 1 - i);
    if (is_index_along(along, dim, shape) && is_one_along(at, {dim}, static_cast<int64_t>(shape.size())))
      return at;
  }
  return std::nullopt;
}

// The sum over `dim` of select(i == k, x, 0), where x does not vary along `dim`: x, where k is an index.
std::optional<Term> one_hot_sum(Term term, const Dims& dims) {
  const Node* node = producer_of(term);
  if (!node || node->kind != OpKind::kSelect || dims.size() != 1) return std::nullopt;
  const Term condition = input_of(term, *node, 0), value = input_of(term, *node, 1);
  if (known_number(input_of(term, *node, 2)) != 0.0 || !is_constant_along(value, dims, term.rank()))
    return std::nullopt;
  const auto found = index_where(condition, dims[0], term.shape());
  if (!found) return std::nullopt;
  const Term at = cast(*found, DType::kI64);  // a size need not fit into the type of its indices
  const Term x = narrow_factor(value, dims, term.rank());
  graph::Shape shape = term.shape();
  const sym::Expr size = std::exchange(shape[static_cast<size_t>(dims[0])], 1);
  const Term inside = logical_and(greater_equal(at, 0), less(at, size_as(term.builder(), DType::kI64, size)));
  return expand(select(inside, x, 0.0), shape);
}

Term sum_of(Term term, const Dims& dims, const graph::Shape& shape, int deep) {
  const auto whole = [&] { return reduce_sum(term, dims, kKeep); };
  const Node* known = producer_of(term);
  if (!known || deep == kDeepest) return whole();
  const Node node = *known;  // a copy: new nodes may move the graph's
  const auto sum = [&](size_t i) { return sum_of(input_of(term, node, i), dims, shape, deep + 1); };
  const auto zero = [&](size_t i) { return is_zero_sum(input_of(term, node, i), dims, shape, deep + 1); };
  const auto fixed = [&](size_t i) { return is_constant_along(input_of(term, node, i), dims, term.rank()); };
  const auto whole_shape = [&](size_t i) { return input_of(term, node, i).shape() == shape; };
  const auto factor = [&](size_t i) { return narrow_factor(input_of(term, node, i), dims, term.rank()); };
  switch (node.kind) {
    case OpKind::kNeg: return -sum(0);
    case OpKind::kAdd:
      if (zero(0) && whole_shape(1)) return sum(1);
      return zero(1) && whole_shape(0) ? sum(0) : whole();
    case OpKind::kSub:
      if (zero(0) && whole_shape(1)) return -sum(1);
      return zero(1) && whole_shape(0) ? sum(0) : whole();
    case OpKind::kMul:
      if (fixed(0) && whole_shape(1)) return factor(0) * sum(1);
      return fixed(1) && whole_shape(0) ? sum(0) * factor(1) : whole();
    case OpKind::kDiv: return fixed(1) && whole_shape(0) ? sum(0) / factor(1) : whole();
    case OpKind::kSelect: {
      const auto picked = one_hot_sum(term, dims);
      return picked ? *picked : whole();
    }
    default: return whole();
  }
}

}  // namespace

Term linear_sum(Term term, const Dims& dims) {
  if (!is_float(term.dtype()) || is_storage_float(term.dtype())) return reduce_sum(term, dims, kKeep);
  if (is_zero_sum(term, dims, term.shape(), 0)) {
    graph::Shape shape = term.shape();
    for (int64_t d : dims) shape[static_cast<size_t>(d)] = 1;
    return {term.builder(), full(term.builder(), shape, term.dtype(), 0)};
  }
  return sum_of(term, dims, term.shape(), 0);
}

}  // namespace stridec::ops

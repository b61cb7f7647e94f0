#include "compiler/passes/fold_affine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/base/number.h"
#include "compiler/ops/helpers.h"
#include "compiler/passes/edit.h"
#include "compiler/passes/linear.h"

namespace stridec::passes {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;

// A linear operator, and for each dim of its result the dim of the weights that it comes from, if any.
struct Linear {
  NodeId node;
  size_t weights;  // an input
  std::vector<int64_t> weight_dim;
};

std::optional<Linear> linear(const Edit& edit, const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const bool window = node.kind == OpKind::kConv || node.kind == OpKind::kConvTranspose;
  if (!window && node.kind != OpKind::kDotGeneral) return std::nullopt;
  Linear out{.node = id, .weights = 1, .weight_dim = {}};
  if (!edit.is_stored_constant(node.inputs[1])) {
    if (window || !edit.is_stored_constant(node.inputs[0])) return std::nullopt;
    out.weights = 0;
  }
  const graph::Type &result = graph[node.outputs[0]].type, &w = graph[node.inputs[out.weights]].type;
  if (result.dtype != w.dtype || (w.dtype != DType::kF32 && w.dtype != DType::kF64)) return std::nullopt;
  out.weight_dim = dims_in_result(graph, node, out.weights);
  return out;
}

// Whether the constant is a scalar, or varies only along dims of the weights.
bool is_along(const Linear& linear, const Shape& constant) {
  const size_t rank = linear.weight_dim.size();
  if (constant.size() > rank) return false;
  for (size_t d = 0; d < constant.size(); ++d)
    if (!constant[d].is_const(1) && linear.weight_dim[rank - constant.size() + d] < 0) return false;
  return true;
}

// An operation on the result so far, with a constant unless it is a negation.
struct Step {
  NodeId node;
  OpKind kind;
  ValueId constant;
  bool constant_left;

  bool scales() const { return kind != OpKind::kAdd && (kind != OpKind::kSub || constant_left); }
};

// Infinite weights would give NaN where they meet zeros. Therefore scales that are infinite, or a division by
// zero, stay separate operations. Constants that are computed rather than stored are assumed to be finite.
bool is_finite_scale(const graph::Value& constant, bool divides) {
  const graph::Data* const data = constant.known_data();
  if (!data) return true;
  const auto size = static_cast<size_t>(byte_size(constant.type.dtype));
  for (size_t at = 0; at + size <= data->size; at += size) {
    const double number = read_float(constant.type.dtype, data->bytes + at);
    if (!std::isfinite(divides ? 1 / number : number)) return false;
  }
  return true;
}

std::optional<Step> step(const Edit& edit, const Graph& graph, const Linear& linear, ValueId value) {
  const auto user = edit.only_user(value);
  if (!user) return std::nullopt;
  const Node& node = graph[*user];
  Step out{.node = *user, .kind = node.kind, .constant = {}, .constant_left = false};
  if (node.kind == OpKind::kNeg) return out;
  if (node.kind != OpKind::kAdd && node.kind != OpKind::kSub && node.kind != OpKind::kMul &&
      node.kind != OpKind::kDiv)
    return std::nullopt;
  out.constant_left = node.inputs[1] == value;
  out.constant = node.inputs[out.constant_left ? 0 : 1];
  if (node.kind == OpKind::kDiv && out.constant_left) return std::nullopt;
  if (!edit.is_constant(out.constant) || !is_along(linear, graph[out.constant].type.shape) ||
      graph[node.outputs[0]].type != graph[value].type)
    return std::nullopt;
  if ((node.kind == OpKind::kMul || node.kind == OpKind::kDiv) &&
      !is_finite_scale(graph[out.constant], node.kind == OpKind::kDiv))
    return std::nullopt;
  return out;
}

// The composition of the steps: y * scale + shift, with y negated first if `negative`.
struct Affine {
  std::optional<ValueId> scale, shift;
  bool negative = false;
};

Affine composed(Builder& b, const std::vector<Step>& steps) {
  Affine a;
  for (const Step& s : steps) {
    const ValueId c = s.constant;
    switch (s.kind) {
      case OpKind::kAdd: a.shift = a.shift ? ops::add(b, *a.shift, c) : c; break;
      case OpKind::kMul:
        a.scale = a.scale ? ops::mul(b, *a.scale, c) : c;
        if (a.shift) a.shift = ops::mul(b, *a.shift, c);
        break;
      case OpKind::kDiv:
        a.scale = a.scale ? ops::div(b, *a.scale, c) : ops::rcp(b, c);
        if (a.shift) a.shift = ops::div(b, *a.shift, c);
        break;
      case OpKind::kSub:
        if (!s.constant_left) {
          a.shift = a.shift ? ops::sub(b, *a.shift, c) : ops::neg(b, c);
          break;
        }
        a.negative = !a.negative;
        a.shift = a.shift ? ops::sub(b, c, *a.shift) : c;
        break;
      default:  // neg
        a.negative = !a.negative;
        if (a.shift) a.shift = ops::neg(b, *a.shift);
    }
  }
  return a;
}

// Multiplies the weights by a scale that varies along dims of the result.
ValueId scaled(Builder& b, const Node& node, const Linear& linear, ValueId weights, ValueId scale) {
  Shape shape(linear.weight_dim.size() - b.shape(scale).size(), 1);
  shape.insert(shape.end(), b.shape(scale).begin(), b.shape(scale).end());
  const Shape whole = b.shape(weights);
  const int64_t groups = node.attributes.integer_or("groups", 1);
  if (node.kind == OpKind::kConvTranspose && groups > 1 && !shape[1].is_const(1)) {
    // Channel g * co + c of the result is weights[g's input channels][c].
    Shape grouped{groups, sym::floordiv(whole[0], groups)}, factor{groups, 1, whole[1]};
    grouped.insert(grouped.end(), whole.begin() + 1, whole.end());
    factor.resize(grouped.size(), 1);
    const ValueId product = ops::mul(b, ops::reshape(b, weights, grouped), ops::reshape(b, scale, factor));
    return ops::reshape(b, product, whole);
  }
  // Dims in the order of the weights, followed by the others, which have extent 1.
  std::vector<int64_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  const auto place = [&](int64_t dim) {
    const int64_t at = linear.weight_dim[static_cast<size_t>(dim)];
    return std::pair(at < 0, at < 0 ? dim : at);
  };
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return place(x) < place(y); });
  Shape factor(whole.size(), 1);
  for (size_t d = 0; d < shape.size(); ++d)
    if (linear.weight_dim[d] >= 0) factor[static_cast<size_t>(linear.weight_dim[d])] = shape[d];
  scale = ops::permute(b, ops::reshape(b, scale, shape), order);
  return ops::mul(b, weights, ops::reshape(b, scale, factor));
}

void fold(Edit& edit, NodeId id) {
  Graph& graph = edit.graph();
  const auto found = linear(edit, graph, id);
  if (!found) return;
  std::vector<Step> steps;
  ValueId end = graph[id].outputs[0];
  while (const auto next = step(edit, graph, *found, end)) {
    steps.push_back(*next);
    end = graph[next->node].outputs[0];
  }
  const bool scales = std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.scales(); });
  if (!scales && steps.size() < 2) return;

  ValueId& weights = graph[id].inputs[found->weights];
  const NodeId last = steps.back().node;
  Affine affine;
  // Inserts the weights, then the operator, then the addend.
  edit.insert_before(
      last,
      [&](Builder& b) {
        affine = composed(b, steps);
        if (affine.scale) weights = scaled(b, graph[id], *found, weights, *affine.scale);
        if (affine.negative) weights = ops::neg(b, weights);
      },
      id);
  edit.insert_before(last, [&](Builder& b) {
    ValueId result = graph[id].outputs[0];
    if (affine.shift) result = ops::add(b, result, *affine.shift);
    b.set_name(result, graph[end].name);
    edit.replace(end, result);
  });
}

}  // namespace

void fold_affine(Graph& graph) {
  Edit edit(graph);
  edit.for_each_node([&](NodeId id) { fold(edit, id); });
  edit.finish();
}

}  // namespace stridec::passes

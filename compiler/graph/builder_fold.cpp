// Simplifications in the Builder: nodes without effect, and views of views.
#include <cmath>
#include <optional>

#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/graph/builder.h"

namespace stridec::graph {

namespace {

// The value of a constant with one element.
std::optional<double> single(const Value& value) {
  const DType dtype = value.type.dtype;
  const Data* const data = value.known_data();
  if (!data || data->size != static_cast<size_t>(byte_size(dtype))) return std::nullopt;
  if (is_float(dtype)) return read_float(dtype, data->bytes);
  return static_cast<double>(read_integer(dtype, data->bytes));
}

bool all_are(const std::vector<sym::Expr>& list, int64_t value) {
  for (sym::Expr e : list)
    if (!e.is_const(value)) return false;
  return true;
}

// Whether the operand leaves the other one unchanged, exactly. x + 0.0 differs from x if x is -0.0; x + -0.0
// does not.
bool is_neutral(OpKind kind, DType dtype, bool right, double value) {
  switch (kind) {
    case OpKind::kAdd: return value == 0 && (!is_float(dtype) || std::signbit(value));
    case OpKind::kSub: return right && value == 0 && !std::signbit(value);
    case OpKind::kMul: return value == 1;
    case OpKind::kDiv: return right && value == 1;
    case OpKind::kAnd: return value == 1;
    case OpKind::kOr: return value == 0;
    default: return false;
  }
}

}  // namespace

// The input that a node without effect returns.
std::optional<ValueId> Builder::same_as(const Node& node, const Inferred& inferred) const {
  if (node.inputs.empty() || inferred.types.size() != 1) return std::nullopt;
  ValueId x = node.inputs[0];
  switch (node.kind) {
    case OpKind::kReshape:
    case OpKind::kExpand:
    case OpKind::kCast:
    case OpKind::kBitcast: break;
    case OpKind::kStopGradient:
      if (is_float(dtype(x)) && !graph_[x].data) return std::nullopt;
      break;
    case OpKind::kConcat:
      if (node.inputs.size() != 1) return std::nullopt;
      break;
    case OpKind::kPermute: {
      const auto& order = node.attributes.integers("order");
      for (size_t i = 0; i < order.size(); ++i)
        if (order[i] != static_cast<int64_t>(i)) return std::nullopt;
      break;
    }
    case OpKind::kSlice:
      if (!all_are(node.attributes.exprs("starts"), 0) || !all_are(node.attributes.exprs("steps"), 1))
        return std::nullopt;
      break;
    case OpKind::kPad:
      if (!all_are(node.attributes.exprs("before"), 0) || !all_are(node.attributes.exprs("after"), 0))
        return std::nullopt;
      break;
    case OpKind::kAdd:
    case OpKind::kSub:
    case OpKind::kMul:
    case OpKind::kDiv:
    case OpKind::kAnd:
    case OpKind::kOr: {
      const auto left = single(graph_[node.inputs[0]]), right = single(graph_[node.inputs[1]]);
      if (left && is_neutral(node.kind, dtype(x), false, *left))
        x = node.inputs[1];
      else if (!right || !is_neutral(node.kind, dtype(x), true, *right))
        return std::nullopt;
      break;
    }
    case OpKind::kSelect: {
      const auto condition = single(graph_[x]);
      if (!condition) return std::nullopt;
      x = node.inputs[*condition != 0 ? 1 : 2];
      break;
    }
    default: return std::nullopt;
  }
  Type out = inferred.types[0];
  for (sym::Expr& dim : out.shape) dim = simplify(dim);
  return out == type(x) ? std::optional(x) : std::nullopt;
}

// Replaces a reshape of a reshape, a permute of a permute, or a cast of a lossless cast by one node on the
// inner node's input.
void Builder::skip_views(Node& node) const {
  if (node.inputs.size() != 1 ||
      (node.kind != OpKind::kReshape && node.kind != OpKind::kPermute && node.kind != OpKind::kCast))
    return;
  const NodeId producer = graph_[node.inputs[0]].producer;
  if (!producer.valid() || graph_[producer].kind != node.kind) return;
  const Node& inner = graph_[producer];
  if (node.kind == OpKind::kCast && !holds_all(dtype(node.inputs[0]), dtype(inner.inputs[0]))) return;
  if (node.kind == OpKind::kPermute) {
    const auto &first = inner.attributes.integers("order"), &second = node.attributes.integers("order");
    if (first.size() != second.size()) return;
    std::vector<int64_t> order;
    for (int64_t dim : second) {
      if (dim < 0 || dim >= static_cast<int64_t>(first.size())) return;
      order.push_back(first[static_cast<size_t>(dim)]);
    }
    node.attributes.set("order", std::move(order));
  }
  node.inputs[0] = inner.inputs[0];
}

// concat(x[s:], x[:s]) is x read from s, with wrap-around: one view of x instead of two pieces. Not along the
// last dim, where the pieces are contiguous and a view with wrap-around is not.
void Builder::rotate_pieces(Node& node) const {
  if (node.kind != OpKind::kConcat || node.inputs.size() != 2 || known(node.inputs[0])) return;
  const auto dim = static_cast<size_t>(node.attributes.integer("dim"));
  const Node* pieces[2];
  for (size_t i = 0; i < 2; ++i) {
    const NodeId producer = graph_[node.inputs[i]].producer;
    if (!producer.valid() || graph_[producer].kind != OpKind::kSlice) return;
    pieces[i] = &graph_[producer];
  }
  const ValueId x = pieces[0]->inputs[0];
  const Shape& shape = graph_[x].type.shape;
  if (pieces[1]->inputs[0] != x || dim + 1 >= shape.size()) return;
  for (const Node* piece : pieces) {
    if (!all_are(piece->attributes.exprs("steps"), 1)) return;
    const auto& starts = piece->attributes.exprs("starts");
    const auto& extents = piece->attributes.exprs("extents");
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != dim && !(starts[d].is_const(0) && simplify(extents[d]) == simplify(shape[d]))) return;
  }
  const auto start = [&](int i) { return pieces[i]->attributes.exprs("starts")[dim]; };
  const auto extent = [&](int i) { return pieces[i]->attributes.exprs("extents")[dim]; };
  const sym::Expr turn = simplify(extent(1));
  if (!start(1).is_const(0) || simplify(start(0)) != turn ||
      simplify(extent(0) + turn) != simplify(shape[dim]))
    return;
  std::vector<sym::Expr> before(shape.size(), 0), after = before;
  before[dim] = simplify(-turn);
  after[dim] = turn;
  node.kind = OpKind::kPad;
  node.inputs = {x};
  node.attributes = Attributes{{"before", before}, {"after", after}, {"mode", std::string("wrap")}};
}

}  // namespace stridec::graph

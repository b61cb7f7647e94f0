#include "compiler/passes/quantized.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "compiler/base/number.h"
#include "compiler/ops/term.h"
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
using ops::Term;

// Sums of this many products of 9-bit values fit in 32 bits.
constexpr int64_t kLongest = 1 << 15;

// (q - zero) * scale, followed by views. q is a byte tensor, or an i32 constant of differences of bytes.
// `zero` is i32 and `scale` is float; both broadcast to q.
struct DequantizedOperand {
  ValueId q;
  std::optional<ValueId> zero, scale;
  std::vector<NodeId> views;  // outermost last
};

bool is_one_number(const Graph& graph, ValueId value) {
  const Shape& shape = graph[value].type.shape;
  return std::all_of(shape.begin(), shape.end(), [](sym::Expr d) { return d.is_const(1); });
}

const Node* producer(const Graph& graph, ValueId value) {
  return graph[value].producer.valid() ? &graph[graph[value].producer] : nullptr;
}

// The operand of the conversion to `to` that produces `value`; nullopt if another node produces it.
std::optional<ValueId> cast_from(const Graph& graph, ValueId value, DType to) {
  const Node* node = producer(graph, value);
  if (!node || node->kind != OpKind::kCast || graph[value].type.dtype != to) return std::nullopt;
  return node->inputs[0];
}

// The byte operand of a conversion to `to`.
std::optional<ValueId> bytes(const Graph& graph, ValueId value, DType to) {
  const auto q = cast_from(graph, value, to);
  if (!q || !is_integer(graph[*q].type.dtype) || info(graph[*q].type.dtype).bits > 8) return std::nullopt;
  return q;
}

bool is_view(OpKind kind) {
  return kind == OpKind::kSlice || kind == OpKind::kReshape || kind == OpKind::kPermute ||
         kind == OpKind::kExpand;
}

// Bounds of the elements of a byte or i32 constant.
struct ElementBounds {
  int64_t low = INT64_MAX, high = INT64_MIN;
  bool within(int64_t least, int64_t most) const { return low >= least && high <= most; }
};

std::optional<ElementBounds> range_of(const Graph& graph, ValueId id) {
  const graph::Value& value = graph[id];
  ElementBounds range;
  const auto add = [&](int64_t number) {
    range.low = std::min(range.low, number);
    range.high = std::max(range.high, number);
  };
  const DType dtype = value.type.dtype;
  const graph::Data* const data = value.known_data();
  if (value.elements) {
    for (sym::Expr e : *value.elements) {
      if (!e.is_const()) return std::nullopt;
      add(e.value());
    }
  } else if (data && dtype == DType::kI32) {
    for (size_t i = 0; i + 4 <= data->size; i += 4) {
      int32_t number = 0;
      std::memcpy(&number, data->bytes + i, 4);
      add(number);
    }
  } else if (data && is_integer(dtype) && byte_size(dtype) == 1) {
    for (size_t i = 0; i < data->size; ++i)
      add(is_signed(dtype) ? static_cast<int8_t>(data->bytes[i]) : int64_t{data->bytes[i]});
  } else {
    // A view has no other elements than its operand.
    const Node* node = producer(graph, id);
    return node && is_view(node->kind) ? range_of(graph, node->inputs[0]) : std::nullopt;
  }
  return range;
}

// Bytes minus their zero point, in 32 bits.
std::optional<DequantizedOperand> centered(const Graph& graph, ValueId value) {
  if (const auto q = bytes(graph, value, DType::kI32)) return DequantizedOperand{*q, {}, {}, {}};
  if (const auto range = range_of(graph, value); range && range->within(-255, 255))
    return DequantizedOperand{value, {}, {}, {}};
  const Node* node = producer(graph, value);
  if (!node || node->kind != OpKind::kSub) return std::nullopt;
  // A zero point has the range of the values that it applies to.
  const auto q = bytes(graph, node->inputs[0], DType::kI32);
  if (!q || graph[*q].type.shape != graph[value].type.shape) return std::nullopt;
  const DType dtype = graph[*q].type.dtype;
  const ValueId zero = node->inputs[1];
  const auto from = cast_from(graph, zero, DType::kI32);
  const bool in_range = from && graph[*from].type.dtype == dtype;
  if (!in_range) {
    const auto range = range_of(graph, zero);
    if (!range || !range->within(is_signed(dtype) ? -128 : 0, is_signed(dtype) ? 127 : 255))
      return std::nullopt;
  }
  return DequantizedOperand{*q, zero, {}, {}};
}

std::optional<DequantizedOperand> operand(const Graph& graph, ValueId value) {
  if (graph[value].type.dtype == DType::kI32) {
    if (auto found = centered(graph, value)) return found;
  }
  const Node* node = producer(graph, value);
  if (!node) return std::nullopt;
  if (node->kind == OpKind::kMul && graph[value].type.dtype == DType::kF32) {
    for (size_t side = 0; side < 2; ++side) {
      const ValueId number = node->inputs[side];
      if (graph[number].type.shape != graph[value].type.shape) continue;
      std::optional<DequantizedOperand> found;
      if (const auto q = bytes(graph, number, DType::kF32)) {
        found = DequantizedOperand{*q, {}, {}, {}};
      } else if (const auto integer = cast_from(graph, number, DType::kF32);
                 integer && graph[*integer].type.dtype == DType::kI32) {
        found = centered(graph, *integer);
      }
      if (!found) continue;
      found->scale = node->inputs[1 - side];
      return found;
    }
    return std::nullopt;
  }
  if (node->kind != OpKind::kPermute && node->kind != OpKind::kReshape && node->kind != OpKind::kExpand)
    return std::nullopt;
  auto found = operand(graph, node->inputs[0]);
  if (!found) return std::nullopt;
  // A scale or zero point that varies along dims can only be carried through a permutation.
  for (const auto& beside : {found->zero, found->scale})
    if (beside && node->kind != OpKind::kPermute && !is_one_number(graph, *beside)) return std::nullopt;
  found->views.push_back(graph[value].producer);
  return found;
}

// 8-bit floats whose products are exact in f32 and which tensor cores multiply.
bool is_narrow(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

// A constant all of whose elements are 0, of either sign.
bool is_zero(const Graph& graph, ValueId value) {
  if (const graph::Data* const data = graph[value].known_data()) {
    const DType dtype = graph[value].type.dtype;
    const size_t width = static_cast<size_t>(byte_size(dtype));
    if (!is_float(dtype)) return false;
    for (size_t i = 0; i < data->size; i += width)
      if (read_float(dtype, data->bytes + i) != 0) return false;
    return true;
  }
  const Node* node = producer(graph, value);
  return node &&
         (node->kind == OpKind::kCast || node->kind == OpKind::kReshape || node->kind == OpKind::kExpand ||
          node->kind == OpKind::kPermute) &&
         is_zero(graph, node->inputs[0]);
}

// 8-bit floats, widened, minus a zero point of 0, times a scale, followed by views; possibly rounded to 16
// bits.
std::optional<DequantizedOperand> narrow_operand(const Graph& graph, ValueId value) {
  const Node* node = producer(graph, value);
  if (is_narrow(graph[value].type.dtype)) return DequantizedOperand{value, {}, {}, {}};
  if (!node || !is_float(graph[value].type.dtype)) return std::nullopt;
  const auto inner = [&](size_t side) -> std::optional<DequantizedOperand> {
    const ValueId number = node->inputs[side];
    return graph[number].type.shape == graph[value].type.shape ? narrow_operand(graph, number) : std::nullopt;
  };
  switch (node->kind) {
    case OpKind::kCast: return inner(0);
    case OpKind::kSub: return is_zero(graph, node->inputs[1]) ? inner(0) : std::nullopt;
    case OpKind::kMul:
      for (size_t side = 0; side < 2; ++side) {
        auto found = inner(side);
        if (!found || found->scale || !found->views.empty()) continue;
        found->scale = node->inputs[1 - side];
        return found;
      }
      return std::nullopt;
    case OpKind::kPermute:
    case OpKind::kReshape:
    case OpKind::kExpand: {
      auto found = narrow_operand(graph, node->inputs[0]);
      if (!found) return std::nullopt;
      if (found->scale && node->kind != OpKind::kPermute && !is_one_number(graph, *found->scale))
        return std::nullopt;
      found->views.push_back(graph[value].producer);
      return found;
    }
    default: return std::nullopt;
  }
}

// A scale or zero point of a tensor with this rank, after the tensor's views.
Term beside_views(Builder& b, Term value, const std::vector<NodeId>& views, int64_t rank) {
  if (is_one_number(b.graph(), value)) return reshape(value, {});
  Shape shape(static_cast<size_t>(rank - value.rank()), 1);
  shape.insert(shape.end(), value.shape().begin(), value.shape().end());
  value = reshape(value, shape);
  for (NodeId view : views)
    value = Term(b, b.add1(OpKind::kPermute, {value.id()}, b.graph()[view].attributes));
  return value;
}

// The operand's bytes after its views, with zero point and scale to match.
struct Numbers {
  Term q;
  std::optional<Term> zero, scale;
};

Numbers numbers(Builder& b, const DequantizedOperand& from) {
  Term q(b, from.q);
  Numbers out{q, {}, {}};
  const int64_t rank = q.rank();
  for (NodeId view : from.views) {
    const Node& node = b.graph()[view];
    q = Term(b, b.add1(node.kind, {q.id()}, node.attributes));
  }
  out.q = q;
  if (from.zero) out.zero = beside_views(b, Term(b, *from.zero), from.views, rank);
  if (from.scale) out.scale = beside_views(b, Term(b, *from.scale), from.views, rank);
  return out;
}

// Reshapes an operand's scale or zero point to broadcast to the result; nullopt if it varies along a
// contracted dim.
std::optional<Term> beside_result(Term value, const std::vector<int64_t>& dims) {
  if (value.rank() == 0) return value;
  Shape rest, shape;
  std::vector<int64_t> order, left;
  for (int64_t dim : dims) {
    if (dim >= 0) order.push_back(dim);
    shape.push_back(dim >= 0 ? value.dim(dim) : sym::Expr(1));
  }
  for (int64_t d = 0; d < value.rank(); ++d) {
    if (std::find(order.begin(), order.end(), d) != order.end()) continue;
    if (!value.dim(d).is_const(1)) return std::nullopt;
    left.push_back(d);
  }
  order.insert(order.end(), left.begin(), left.end());
  return reshape(permute(value, order), shape);
}

// The single value of all elements of an integer constant, through views and widening.
std::optional<int64_t> known_number(Builder& b, ValueId value) {
  const Graph& graph = b.graph();
  if (const auto elements = b.known(value)) {
    if (elements->empty() || !elements->front().is_const()) return std::nullopt;
    for (sym::Expr e : *elements)
      if (e != elements->front()) return std::nullopt;
    return elements->front().value();
  }
  const Node* node = producer(graph, value);
  if (!node) return std::nullopt;
  if (is_view(node->kind) || (node->kind == OpKind::kCast && graph[value].type.dtype == DType::kI32))
    return known_number(b, node->inputs[0]);
  const graph::Data* const data = graph[value].known_data();
  const auto width = static_cast<size_t>(byte_size(graph[value].type.dtype));
  if (!data || data->size < width || !is_integer(graph[value].type.dtype)) return std::nullopt;
  for (size_t i = width; i < data->size; ++i)
    if (data->bytes[i] != data->bytes[i - width]) return std::nullopt;
  int64_t number = 0;
  std::memcpy(&number, data->bytes, width);
  const auto unused = static_cast<int>(64 - 8 * width);
  number = static_cast<int64_t>(static_cast<uint64_t>(number) << unused);
  return is_signed(graph[value].type.dtype) ? number >> unused
                                            : static_cast<int64_t>(static_cast<uint64_t>(number) >> unused);
}

// The values minus their zero point, in 16 bits.
Term difference(const Numbers& x) {
  if (!x.zero) return x.q.dtype() == DType::kI32 ? cast(x.q, DType::kI16, false) : x.q;
  return cast(cast(x.q, DType::kI32) - *x.zero, DType::kI16, false);
}

// The same in 8 bits, if the result is known to fit.
std::optional<Term> difference_in_bytes(Builder& b, const DequantizedOperand& from, const Numbers& x) {
  const std::optional<int64_t> zero = x.zero ? known_number(b, x.zero->id()) : std::optional<int64_t>(0);
  if (!zero) return std::nullopt;
  if (*zero == 0 && x.q.dtype() == DType::kI8) return x.q;
  const auto range = range_of(b.graph(), from.q);
  if (!range || !range->within(-128 + *zero, 127 + *zero)) return std::nullopt;
  return cast(cast(x.q, DType::kI32) - static_cast<double>(*zero), DType::kI8, false);
}

struct QuantizedProduct {
  const Node& node;
  bool window;
  bool padded = false;
  std::vector<int64_t> summed[2];  // dims of each operand
};

QuantizedProduct product_of(const Graph& graph, const Node& node) {
  QuantizedProduct p{.node = node, .window = node.kind == OpKind::kConv, .summed = {}};
  for (size_t side = 0; side < 2; ++side) {
    if (!p.window) {
      p.summed[side] = node.attributes.integers(side == 0 ? "contract_a" : "contract_b");
      continue;
    }
    const auto rank = static_cast<int64_t>(graph[node.inputs[side]].type.shape.size());
    for (int64_t d = 1; d < rank; ++d) p.summed[side].push_back(d);
  }
  if (p.window)
    for (const char* end : {"before", "after"})
      for (sym::Expr e : node.attributes.exprs(end)) p.padded = p.padded || !e.is_const(0);
  return p;
}

Term multiply(Builder& b, const QuantizedProduct& p, Term x, Term w, bool padded, DType sum = DType::kI32) {
  graph::Attributes attributes = p.node.attributes;
  attributes.set("accumulate", sum);
  attributes.set("to", sum);
  if (padded) {
    const std::vector<sym::Expr> none(attributes.exprs("before").size(), 0);
    attributes.set("before", none);
    attributes.set("after", none);
  }
  return Term(b, b.add1(p.node.kind, {x.id(), w.id()}, std::move(attributes)));
}

// i8 + 128, in u8.
Term unsigned_bytes(Term x) {
  const Term bits(x.builder(), x.builder().add1(OpKind::kBitcast, {x.id()}, {{"to", DType::kU8}}));
  return apply(OpKind::kBitXor, bits, 128.0);
}

bool has_groups(const QuantizedProduct& p) {
  return p.window && p.node.attributes.integer_or("groups", 1) > 1;
}

// Multiplies bytes by constant bytes, with the zero point of the data split off; nullopt if that is not
// possible. For grouped convolutions, whose kernels read the data directly, 16-bit constants are also
// allowed.
std::optional<Term> multiply_bytes(Builder& b, const Edit& edit, const QuantizedProduct& p,
                                   const DequantizedOperand (&from)[2], const Numbers (&given)[2]) {
  for (size_t w = p.window ? 1 : 0; w < 2; ++w) {
    const size_t x = 1 - w;
    if (!edit.is_constant(from[w].q)) continue;
    std::optional<Term> weights = difference_in_bytes(b, from[w], given[w]);
    if (!weights && has_groups(p)) weights = difference(given[w]);
    if (!weights) continue;
    Term data = given[x].q;
    std::optional<Term> point = given[x].zero;
    if (byte_size(data.dtype()) != 1 || (point && point->rank() != 0)) continue;
    std::optional<int64_t> zero = point ? known_number(b, point->id()) : std::optional<int64_t>(0);
    if (data.dtype() == DType::kI8) {
      // The instructions take unsigned data: storing i8 + 128 saves a correction per group of k.
      data = unsigned_bytes(data);
      point = point ? *point + 128.0 : ops::number(b, DType::kI32, 128);
      if (zero) *zero += 128;
    }
    Term operands[2] = {data, *weights};
    if (w == 0) std::swap(operands[0], operands[1]);
    if (zero && *zero == 0) return multiply(b, p, operands[0], operands[1], false);
    const bool pads = p.padded;
    if (pads) {
      if (!zero) continue;
      std::vector<sym::Expr> before{0, 0}, after{0, 0};
      for (sym::Expr e : p.node.attributes.exprs("before")) before.push_back(e);
      for (sym::Expr e : p.node.attributes.exprs("after")) after.push_back(e);
      operands[0] =
          Term(b, ops::pad(b, data, before, after, b.scalar(data.dtype(), static_cast<double>(*zero))));
    }
    const Term sums = reduce_sum(cast(*weights, DType::kI32), p.summed[w], ops::kKeep);
    const auto offset = beside_result(sums, dims_in_result(b.graph(), p.node, w));
    return multiply(b, p, operands[0], operands[1], pads) - *offset * *point;
  }
  return std::nullopt;
}

bool is_depthwise(const Graph& graph, const QuantizedProduct& p) {
  return has_groups(p) && graph[p.node.inputs[1]].type.shape[1].is_const(1);
}

// Multiplies the scales of both operands, shaped for the result. Returns false if one varies along a
// contracted dim.
bool scales_of(Builder& b, const Node& node, const Numbers (&given)[2], std::optional<Term>& scale) {
  for (size_t side = 0; side < 2; ++side) {
    if (!given[side].scale) continue;
    const auto own = beside_result(*given[side].scale, dims_in_result(b.graph(), node, side));
    if (!own) return false;
    scale = scale ? *scale * *own : *own;
  }
  return true;
}

// Converts a contraction of 8-bit floats, which keep their type. Returns whether it is one.
bool contract_narrow(Edit& edit, NodeId id) {
  Graph& graph = edit.graph();
  const Node& node = graph[id];
  const DType dtype = graph[node.outputs[0]].type.dtype;
  const auto a = narrow_operand(graph, node.inputs[0]), w = narrow_operand(graph, node.inputs[1]);
  if (!a || !w) return false;
  const QuantizedProduct p = product_of(graph, node);
  const bool bare = a->q == node.inputs[0] && w->q == node.inputs[1];
  if (bare || is_depthwise(graph, p)) return true;
  edit.insert_before(id, [&](Builder& b) {
    const Numbers given[2] = {numbers(b, *a), numbers(b, *w)};
    std::optional<Term> scale;
    if (!scales_of(b, node, given, scale)) return;
    Term result = multiply(b, p, given[0].q, given[1].q, false, DType::kF32);
    if (scale) result = result * cast(*scale, DType::kF32);
    result = cast(result, dtype);
    b.set_name(result, graph[node.outputs[0]].name);
    edit.replace(node.outputs[0], result);
  });
  return true;
}

void contract(Edit& edit, NodeId id) {
  Graph& graph = edit.graph();
  const Node& node = graph[id];
  if (node.kind != OpKind::kConv && node.kind != OpKind::kDotGeneral) return;
  if (contract_narrow(edit, id)) return;
  const DType dtype = graph[node.outputs[0]].type.dtype;
  const bool scaled = dtype == DType::kF32;
  if (!scaled && dtype != DType::kI32) return;
  const auto a = operand(graph, node.inputs[0]), w = operand(graph, node.inputs[1]);
  if (!a || !w || a->scale.has_value() != scaled || w->scale.has_value() != scaled) return;

  const QuantizedProduct p = product_of(graph, node);
  if (scaled) {
    // Integer contractions of the model may have any length. One that replaces a float contraction must not
    // overflow.
    sym::Expr count = 1;
    for (int64_t d : p.summed[1]) count *= graph[node.inputs[1]].type.shape[static_cast<size_t>(d)];
    if (!graph.facts.holds(sym::le(count, kLongest))) return;
  }
  edit.insert_before(id, [&](Builder& b) {
    const DequantizedOperand from[2] = {*a, *w};
    const Numbers given[2] = {numbers(b, *a), numbers(b, *w)};
    std::optional<Term> scale;
    if (scaled && !scales_of(b, node, given, scale)) return;
    std::optional<Term> sum = multiply_bytes(b, edit, p, from, given);
    // A depthwise convolution does not share loads between multiplications. Only kernels that multiply
    // several taps at once, bytes by constants, are faster than floats.
    if (!sum && scaled && is_depthwise(graph, p)) return;
    if (!sum) sum = multiply(b, p, difference(given[0]), difference(given[1]), false);
    const Term result = scaled ? cast(*sum, DType::kF32) * *scale : *sum;
    b.set_name(result, graph[node.outputs[0]].name);
    edit.replace(node.outputs[0], result);
  });
}

}  // namespace

void contract_quantized(Graph& graph) {
  Edit edit(graph);
  edit.for_each_node([&](NodeId id) { contract(edit, id); });
  edit.finish();
}

}  // namespace stridec::passes

#include "compiler/passes/requantize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/number.h"
#include "compiler/ops/term.h"
#include "compiler/passes/edit.h"

namespace stridec::passes {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;
using ops::Term;

// Terms of a sum; with more, the multiplications cost more than the division.
constexpr size_t kMostLeaves = 4;

const Node* producer(const Graph& graph, ValueId value) {
  return graph[value].producer.valid() ? &graph[graph[value].producer] : nullptr;
}

// number * term: a constant of the model.
struct Factor {
  double number = 1;
  std::optional<Term> term;
};

// float(integers - zero) * factor
struct Leaf {
  ValueId integers;
  Factor factor;
  double zero = 0;
};

// The sum of the leaves and of the constants.
struct Sum {
  std::vector<Leaf> leaves;
  std::vector<Factor> rest;
};

class Reader {
 public:
  Reader(const Edit& edit, Builder& b) : edit_(edit), b_(b), graph_(b.graph()) {}

  // The value as such a sum; nullopt if it contains anything else.
  std::optional<Sum> sum(ValueId value) {
    if (const auto constant = factor(value)) return Sum{{}, {*constant}};
    const Node* node = producer(graph_, value);
    if (!node || graph_[value].type.dtype != DType::kF32) return std::nullopt;
    switch (node->kind) {
      case OpKind::kCast: return integers(node->inputs[0]);
      case OpKind::kNeg: return scaled(sum(node->inputs[0]), {-1, {}}, false);
      case OpKind::kMul:
        for (size_t side = 0; side < 2; ++side)
          if (const auto by = factor(node->inputs[side]))
            return scaled(sum(node->inputs[1 - side]), *by, false);
        return std::nullopt;
      case OpKind::kDiv:
        if (const auto by = factor(node->inputs[1])) return scaled(sum(node->inputs[0]), *by, true);
        return std::nullopt;
      case OpKind::kAdd: return joined(sum(node->inputs[0]), sum(node->inputs[1]));
      case OpKind::kSub: return joined(sum(node->inputs[0]), scaled(sum(node->inputs[1]), {-1, {}}, false));
      case OpKind::kReshape:
      case OpKind::kPermute:
      case OpKind::kExpand:
      case OpKind::kSlice:
      case OpKind::kGather: return picked(*node, sum(node->inputs[0]));
      case OpKind::kReduceWindow: {
        if (node->attributes.text("kind") != "max") return std::nullopt;
        auto inner = sum(node->inputs[0]);
        if (!inner || inner->leaves.size() != 1 || inner->leaves[0].factor.number <= 0) return std::nullopt;
        return picked(*node, std::move(inner));
      }
      default: return std::nullopt;
    }
  }

  std::optional<Sum> scaled(std::optional<Sum> sum, const Factor& by, bool divide) {
    if (!sum) return sum;
    for (Leaf& leaf : sum->leaves)
      if (!scale(leaf.factor, by, divide)) return std::nullopt;
    for (Factor& factor : sum->rest)
      if (!scale(factor, by, divide)) return std::nullopt;
    return sum;
  }

  // The value as a constant factor.
  std::optional<Factor> factor(ValueId value) {
    const graph::Value& constant = graph_[value];
    if (!edit_.is_constant(value) || constant.type.dtype != DType::kF32) return std::nullopt;
    if (constant.type.shape.empty() && constant.known_data())
      return Factor{read_float(DType::kF32, constant.data->bytes), {}};
    return Factor{1, Term(b_, value)};
  }

 private:
  std::optional<Sum> integers(ValueId value) {
    const DType dtype = graph_[value].type.dtype;
    if (!is_integer(dtype) || info(dtype).bits > 32 || dtype == DType::kU32) return std::nullopt;
    const Node* node = producer(graph_, value);
    if (dtype == DType::kI32 && node && node->kind == OpKind::kSub) {
      // A byte minus its zero point.
      const Node* wide = producer(graph_, node->inputs[0]);
      const auto zero = b_.known(node->inputs[1]);
      if (wide && wide->kind == OpKind::kCast && zero && zero->size() == 1 && zero->front().is_const() &&
          info(graph_[wide->inputs[0]].type.dtype).bits <= 8 &&
          graph_[wide->inputs[0]].type.shape == graph_[value].type.shape)
        return Sum{{{wide->inputs[0], {}, static_cast<double>(zero->front().value())}}, {}};
    }
    return Sum{{{value, {}}}, {}};
  }

  std::optional<Sum> joined(std::optional<Sum> a, std::optional<Sum> b) {
    if (!a || !b || a->leaves.size() + b->leaves.size() > kMostLeaves) return std::nullopt;
    a->leaves.insert(a->leaves.end(), b->leaves.begin(), b->leaves.end());
    a->rest.insert(a->rest.end(), b->rest.begin(), b->rest.end());
    return a;
  }

  // Applies a selecting operation to the integers instead, if the constants are the same for all elements.
  std::optional<Sum> picked(const Node& node, std::optional<Sum> sum) {
    if (!sum) return sum;
    const graph::Type& whole = graph_[node.inputs[0]].type;
    for (const Factor& factor : sum->rest)
      if (factor.term) return std::nullopt;
    const OpKind kind = node.kind;
    const graph::Attributes attributes = node.attributes;
    std::vector<ValueId> inputs = node.inputs;
    for (Leaf& leaf : sum->leaves) {
      if (leaf.factor.term || graph_[leaf.integers].type.shape != whole.shape) return std::nullopt;
      inputs[0] = leaf.integers;
      leaf.integers = b_.add1(kind, inputs, attributes);
    }
    return sum;
  }

  bool scale(Factor& factor, const Factor& by, bool divide) {
    factor.number = divide ? factor.number / by.number : factor.number * by.number;
    if (!by.term) return true;
    if (!factor.term) {
      factor.term = divide ? rcp(*by.term) : *by.term;
      return true;
    }
    const sym::Expr most = sym::max(ops::count(factor.term->shape()), ops::count(by.term->shape()));
    factor.term = divide ? *factor.term / *by.term : *factor.term * *by.term;
    return sym::as_const(sym::le(ops::count(factor.term->shape()), most)) == 1;
  }

  const Edit& edit_;
  Builder& b_;
  const Graph& graph_;
};

Term built(Builder& b, const Factor& factor) {
  if (!factor.term) return ops::number(b, DType::kF32, factor.number);
  return factor.number == 1 ? *factor.term : *factor.term * factor.number;
}

// Whether a node rounds, adds this zero point, clamps to bytes, and is used only by this sum. The sum is
// likely to be fused into the node's kernel, which has the value in a register; subtracting the same zero
// point again then costs nothing.
bool moves_back(const Edit& edit, const Graph& graph, const Leaf& leaf) {
  const Node* clamped = producer(graph, leaf.integers);
  if (!clamped || clamped->kind != OpKind::kCast || clamped->attributes.integer_or("saturate", 0) == 0 ||
      !edit.only_user(leaf.integers))
    return false;
  const Node* moved = producer(graph, clamped->inputs[0]);
  if (!moved || moved->kind != OpKind::kAdd) return false;
  const graph::Data* const by = graph[moved->inputs[1]].known_data();
  return by && graph[moved->inputs[1]].type == graph::Type{DType::kF32, {}} &&
         read_float(DType::kF32, by->bytes) == leaf.zero;
}

Term built(const Edit& edit, Builder& b, const Sum& sum) {
  // Constants first: they are computed once, at compile time.
  std::optional<Term> rest;
  double number = 0;
  const auto add = [&](const Factor& factor) {
    if (!factor.term)
      number += factor.number;
    else
      rest = rest ? *rest + built(b, factor) : built(b, factor);
  };
  for (const Factor& factor : sum.rest) add(factor);
  std::vector<Term> numbers;
  for (const Leaf& leaf : sum.leaves) {
    numbers.push_back(cast(Term(b, leaf.integers), DType::kF32));
    if (leaf.zero == 0) continue;
    if (moves_back(edit, b.graph(), leaf)) {
      numbers.back() = numbers.back() - leaf.zero;
      if (!rest && number == 0) rest = ops::number(b, DType::kF32, 0);  // makes -0 become 0
    } else {
      add({-leaf.zero * leaf.factor.number, leaf.factor.term});
    }
  }
  if (number != 0) rest = rest ? *rest + number : ops::number(b, DType::kF32, number);
  std::optional<Term> total;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Term by = built(b, sum.leaves[i].factor);
    const auto& beside = total ? total : rest;
    total = beside ? fma(numbers[i], by, *beside) : numbers[i] * by;
  }
  return *total;
}

// saturate(round(x / scale) + zero)
struct Quantize {
  ValueId x, quotient, scale;
  double zero = 0;
};

std::optional<Quantize> match(const Graph& graph, const Edit& edit, const Node& node) {
  if (node.kind != OpKind::kCast || node.attributes.integer_or("saturate", 0) == 0) return std::nullopt;
  const DType to = graph[node.outputs[0]].type.dtype;
  if (!is_integer(to) || info(to).bits > 16) return std::nullopt;
  Quantize q;
  ValueId rounded = node.inputs[0];
  const Node* above = producer(graph, rounded);
  if (above && above->kind == OpKind::kAdd) {
    const graph::Value& zero = graph[above->inputs[1]];
    if (!zero.known_data() || !zero.type.shape.empty() || zero.type.dtype != DType::kF32) return std::nullopt;
    q.zero = read_float(DType::kF32, zero.data->bytes);
    above = producer(graph, above->inputs[0]);
  }
  if (!above || above->kind != OpKind::kRound) return std::nullopt;
  q.quotient = above->inputs[0];
  const Node* division = producer(graph, q.quotient);
  if (!division || division->kind != OpKind::kDiv || !edit.is_constant(division->inputs[1]) ||
      graph[q.quotient].type.dtype != DType::kF32)
    return std::nullopt;
  q.x = division->inputs[0], q.scale = division->inputs[1];
  return q;
}

// Whether the sum is the integers of its only leaf minus `zero`.
bool is_leaf(const Graph& graph, const Sum& sum, double zero, const graph::Type& type) {
  constexpr double kEqual = 1e-9;  // tolerance for f64 rounding
  if (sum.leaves.size() != 1 || sum.leaves[0].factor.term || graph[sum.leaves[0].integers].type != type ||
      std::abs(sum.leaves[0].factor.number - 1) > kEqual)
    return false;
  double shift = zero - sum.leaves[0].zero;
  for (const Factor& factor : sum.rest) {
    if (factor.term) return false;
    shift += factor.number;
  }
  return std::abs(shift) <= kEqual * (1 + std::abs(zero));
}

void rewrite(Edit& edit, NodeId id) {
  const auto found = match(edit.graph(), edit, edit.graph()[id]);
  if (!found || edit.is_constant(found->x)) return;
  edit.insert_before(edit.graph()[found->quotient].producer, [&](Builder& b) {
    Reader reader(edit, b);
    const auto by = reader.factor(found->scale);
    if (!by) return;
    const auto sum = reader.scaled(reader.sum(found->x), *by, true);
    if (!sum || sum->leaves.empty()) return;
    const ValueId result = b.graph()[id].outputs[0];
    if (is_leaf(b.graph(), *sum, found->zero, b.graph()[result].type)) {
      edit.replace(result, sum->leaves[0].integers);
      return;
    }
    for (const Leaf& leaf : sum->leaves)
      if (!std::isnormal(static_cast<float>(leaf.factor.number))) return;
    const Term quotient = built(edit, b, *sum);
    if (quotient.shape() == b.shape(found->quotient)) edit.replace(found->quotient, quotient);
  });
}

}  // namespace

void requantize(Graph& graph) {
  Edit edit(graph);
  edit.for_each_node([&](NodeId id) { rewrite(edit, id); });
  edit.finish();
}

}  // namespace stridec::passes

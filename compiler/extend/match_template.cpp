#include "compiler/extend/match_template.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/graph/gradient_marks.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

class Comparison {
 public:
  Comparison(const Graph& pattern, Builder& builder) : pattern_(pattern), b_(builder) {}

  struct State {
    std::map<ValueId, ValueId> values;
    std::vector<NodeId> nodes;
    std::optional<double> number;
  };

  bool match(State& state, ValueId of, ValueId value) const {
    const auto [known, fresh] = state.values.emplace(of, value);
    if (!fresh) return known->second == value;
    const NodeId made = pattern_[of].producer;
    if (!made.valid()) return pattern_[of].type == b_.type(value);
    const Node& node = pattern_[made];
    if (node.kind == OpKind::kConstant) return constant(state, of, value);
    const NodeId producer = b_.graph()[value].producer;
    if (!producer.valid()) return false;
    const Node& other = b_.graph()[producer];
    if (other.kind != node.kind || other.inputs.size() != node.inputs.size() ||
        b_.graph()[value].output != pattern_[of].output || !same_attributes(node, other))
      return false;
    state.nodes.push_back(producer);
    if (!is_commutative(node.kind)) return inputs(state, node, other, false);
    State turned = state;
    if (inputs(state, node, other, false)) return true;
    state = std::move(turned);
    return inputs(state, node, other, true);
  }

 private:
  bool inputs(State& state, const Node& node, const Node& other, bool turned) const {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!match(state, node.inputs[i], other.inputs[turned ? 1 - i : i])) return false;
    return true;
  }
  bool constant(State& state, ValueId of, ValueId value) const {
    const auto mine = splat(pattern_, of), theirs = splat(b_.graph(), value);
    if (!mine || !theirs || pattern_[of].type.dtype != b_.dtype(value)) return false;
    if (*mine == round_float(pattern_[of].type.dtype, kUnknownNumber)) {
      if (state.number && *state.number != *theirs) return false;
      state.number = *theirs;
      return true;
    }
    return *mine == *theirs && std::signbit(*mine) == std::signbit(*theirs);
  }
  bool same_attributes(const Node& node, const Node& other) const {
    const auto has = [&](const Node& x, const Node& y) {
      return std::ranges::all_of(x.attributes.items(), [&](const auto& item) {
        const graph::AttributeValue* found = y.attributes.find(item.first);
        return is_immaterial(x.kind, item.first, x) || (found && same(item.second, *found));
      });
    };
    return has(node, other) && has(other, node);
  }
  bool same(const graph::AttributeValue& x, const graph::AttributeValue& y) const {
    const Attr a = from_graph(x), b = from_graph(y);
    if (a == b) return true;
    const auto *m = std::get_if<std::vector<sym::Expr>>(&a), *n = std::get_if<std::vector<sym::Expr>>(&b);
    return m && n &&
           std::ranges::equal(*m, *n, [&](sym::Expr p, sym::Expr q) { return b_.holds(sym::eq(p, q)); });
  }

  const Graph& pattern_;
  Builder& b_;
};

// Rules see graphs without the marks of gradients.
ValueId without_marks(Graph& graph, ValueId result) {
  graph.top.results = {result};
  graph::drop_gradient_marks(graph);
  return graph.top.results[0];
}

}  // namespace

std::optional<double> splat(const graph::Graph& graph, ValueId id) {
  const graph::Value& value = graph[id];
  const graph::Data* data = value.known_data();
  if (!data || data->size == 0) return std::nullopt;
  const size_t width = static_cast<size_t>(byte_size(value.type.dtype));
  for (size_t at = width; at < data->size; ++at)
    if (data->bytes[at] != data->bytes[at - width]) return std::nullopt;
  return is_float(value.type.dtype) ? read_float(value.type.dtype, data->bytes)
                                    : static_cast<double>(read_integer(value.type.dtype, data->bytes));
}

std::vector<OpKind> template_kinds(const Composite& composite) {
  std::vector<OpKind> kinds;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32, DType::kU8})
    for (const char* form : {"erf", "tanh"}) {
      Graph graph;
      Builder builder(graph, ops::shape_table());
      Arguments arguments;
      for (const std::string_view parameter : composite.parameters) {
        if (parameter == "dims" || parameter == "first")
          arguments.emplace(parameter, sym::Expr(0));
        else if (parameter == "second")
          arguments.emplace(parameter, sym::Expr(1));
        else if (parameter == "form")
          arguments.emplace(parameter, std::string(form));
        else
          arguments.emplace(parameter, 0.1);
      }
      try {
        const ValueId result =
            without_marks(graph, composite.build(builder, {builder.input("x", {dtype, {2, 3}})}, arguments));
        const NodeId producer = graph[result].producer;
        if (producer.valid() && std::ranges::count(kinds, graph[producer].kind) == 0)
          kinds.push_back(graph[producer].kind);
      } catch (const Error&) {  // no operator of this type
      }
    }
  return kinds;
}

std::optional<TemplateMatch> match_template(Builder& builder, const Composite& composite,
                                            const Arguments& arguments, ValueId value) {
  const auto type = composite.input_of(builder.type(value));
  if (!type) return std::nullopt;
  Graph pattern;
  pattern.symbols = builder.graph().symbols;
  pattern.facts = builder.graph().facts;
  Builder inner(pattern, ops::shape_table());
  ValueId result;
  try {
    result = without_marks(pattern, composite.build(inner, {inner.input("x", *type)}, arguments));
  } catch (const Error&) {
    return std::nullopt;  // the operator has no such type
  }
  const NodeId made = pattern[result].producer, producer = builder.graph()[value].producer;
  if (!made.valid() || !producer.valid() || pattern[made].kind != builder.graph()[producer].kind)
    return std::nullopt;
  Comparison::State state;
  if (!Comparison(pattern, builder).match(state, result, value)) return std::nullopt;
  const auto input = state.values.find(pattern.top.parameters[0]);
  if (input == state.values.end()) return std::nullopt;
  return TemplateMatch{.input = input->second, .nodes = std::move(state.nodes), .number = state.number};
}

}  // namespace stridec::extend

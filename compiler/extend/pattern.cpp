#include "compiler/extend/pattern.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/numeric.h"
#include "compiler/extend/match_template.h"

namespace stridec::extend {
namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

// The most steps of may_match() at one node: commutative operators multiply the alternatives. Beyond this
// limit it returns true.
constexpr int kMostSteps = 200;
// The most nested definitions that depth_of() follows.
constexpr int kMostNames = 64;

std::optional<OpKind> kind_of(const Term& term) {
  if (term.name == "+") return OpKind::kAdd;
  if (term.name == "-") return OpKind::kSub;
  if (term.name == "*") return OpKind::kMul;
  if (term.name == "/") return OpKind::kDiv;
  if (term.name == "neg") return OpKind::kNeg;
  return graph::parse_op(term.name);
}

bool keeps_dims(const Split& split) {
  return std::ranges::any_of(split.attributes, [](const auto& item) {
    return item.first == "keep" && item.second->kind == Term::Kind::kNumber && item.second->number != 0;
  });
}

bool may_bind(const Graph& graph, const Variable& variable, ValueId id) {
  const graph::Value& value = graph[id];
  if (std::ranges::count(variable.dtypes, value.type.dtype) == 0) return false;
  if (variable.constant && !value.known_data()) return false;
  const bool rest = std::ranges::count(variable.dims, Dim::Kind::kRest, &Dim::kind) > 0;
  const size_t rank = value.type.shape.size(), dims = variable.dims.size();
  return rest ? rank + 1 >= dims : rank == dims;
}

}  // namespace

GraphIndex::GraphIndex(const Graph& graph) {
  grow(graph);
  look(graph, graph.top);
}

void GraphIndex::grow(const Graph& graph) {
  users.resize(graph.values.size());
  held.resize(graph.values.size());
  splats_.resize(graph.values.size());
  region.resize(graph.nodes.size());
}

void GraphIndex::look(const Graph& graph, const graph::Region& of) {
  for (const NodeId id : of.nodes) {
    region[id.value] = &of;
    for (const ValueId input : graph[id].inputs) users[input.value].push_back(id);
    for (const graph::Region& inner : graph[id].regions) look(graph, inner);
  }
  for (const ValueId result : of.results) ++held[result.value];
}

const std::optional<double>& GraphIndex::splat(const Graph& graph, ValueId value) const {
  std::optional<std::optional<double>>& known = splats_[value.value];
  if (!known) known = extend::splat(graph, value);
  return *known;
}

bool is_number(const Term& term, DType dtype, double constant) {
  const double wanted = is_float(dtype) ? round_float(dtype, term.number) : term.number;
  const bool same = constant == wanted && std::signbit(constant) == std::signbit(wanted);
  return same || std::abs(constant - term.number) <= term.tolerance * std::abs(term.number);
}

std::optional<ValueId> root_value(const Rule& rule, const Node& node) {
  const Definition& last = rule.match.results.back();
  const size_t output = last.names.size() > 1 ? 0 : static_cast<size_t>(std::max(last.term.output, 0));
  if (node.outputs.size() < std::max(last.names.size(), output + 1)) return std::nullopt;
  return node.outputs[output];
}

Pattern::Pattern(const Rule& rule) : rule_(rule) {
  for (const auto* list : {&rule.match.locals, &rule.match.results})
    for (const Definition& each : *list) add(each.term);
  const PatternPart& root = part(rule.match.results.back().term);
  switch (root.kind) {
    case PatternPart::Kind::kMatmul: root_kinds_ = {OpKind::kDotGeneral}; break;
    case PatternPart::Kind::kComposite: root_kinds_ = template_kinds(*root.composite); break;
    case PatternPart::Kind::kKeptReduction: root_kinds_ = {OpKind::kReshape}; break;
    default: root_kinds_ = {root.op.value()};
  }
  for (const Definition& each : rule.match.results) depth_ = std::max(depth_, depth_of(each.term, 0));
}

void Pattern::add(const Term& term) {
  PatternPart made;
  if (term.kind == Term::Kind::kNumber) {
    made.kind = PatternPart::Kind::kNumber;
  } else if (term.kind == Term::Kind::kName) {
    made.variable = rule_.find(term.name);
    for (const auto* list : {&rule_.match.locals, &rule_.match.results})
      for (const Definition& each : *list)
        if (!made.variable && !made.definition && std::ranges::count(each.names, term.name) > 0)
          made.definition = &each;
  } else {
    made.split = split(term);
    made.composite = find_composite(term.name);
    if (!made.composite && term.name != "matmul") made.op = kind_of(term);
    made.kind = term.name == "matmul"    ? PatternPart::Kind::kMatmul
                : made.composite         ? PatternPart::Kind::kComposite
                : keeps_dims(made.split) ? PatternPart::Kind::kKeptReduction
                                         : PatternPart::Kind::kPrimitive;
    made.commutative = made.op && is_commutative(*made.op) && term.args.size() == 2;
  }
  parts_.emplace(&term, std::move(made));
  for (const Term& arg : term.args) add(arg);
}

int Pattern::depth_of(const Term& term, int names) const {
  const PatternPart& of = part(term);
  if (of.definition) return names > kMostNames ? 0 : depth_of(of.definition->term, names + 1);
  int below = 0;
  for (const Term& arg : term.args) below = std::max(below, depth_of(arg, names));
  switch (of.kind) {
    case PatternPart::Kind::kName:
    case PatternPart::Kind::kNumber: return 0;
    case PatternPart::Kind::kPrimitive: return below + 1;
    case PatternPart::Kind::kKeptReduction:
    case PatternPart::Kind::kMatmul: return below + 2;
    // No template has more operations.
    case PatternPart::Kind::kComposite: return below + 32;
  }
  return below;
}

bool Pattern::may_match(const Graph& graph, const GraphIndex& index, NodeId root) const {
  const std::optional<ValueId> value = root_value(rule_, graph[root]);
  int steps = 0;
  return value && may_match(graph, index, rule_.match.results.back().term, *value, steps);
}

bool Pattern::may_match(const Graph& graph, const GraphIndex& index, const Term& term, ValueId value,
                        int& steps) const {
  if (++steps > kMostSteps) return true;
  const PatternPart& of = part(term);
  const NodeId producer = graph[value].producer;
  const auto operand = [&](const Term& arg, ValueId input) {
    return may_match(graph, index, arg, input, steps);
  };
  switch (of.kind) {
    case PatternPart::Kind::kName:
      if (of.variable) return may_bind(graph, *of.variable, value);
      return !of.definition || of.definition->names.size() > 1 || operand(of.definition->term, value);
    case PatternPart::Kind::kNumber: {
      const std::optional<double>& constant = index.splat(graph, value);
      return constant && is_number(term, graph[value].type.dtype, *constant);
    }
    case PatternPart::Kind::kPrimitive: {
      if (!producer.valid() || graph[producer].kind != *of.op || graph[value].output != term.output)
        return false;
      const std::vector<ValueId>& inputs = graph[producer].inputs;
      const std::vector<const Term*>& args = of.split.tensors;
      if (inputs.size() != args.size()) return false;
      bool all = true;
      for (size_t i = 0; all && i < args.size(); ++i) all = operand(*args[i], inputs[i]);
      return all || (of.commutative && operand(*args[0], inputs[1]) && operand(*args[1], inputs[0]));
    }
    case PatternPart::Kind::kKeptReduction: {
      if (!producer.valid() || graph[producer].kind != OpKind::kReshape) return false;
      const NodeId reduction = graph[graph[producer].inputs[0]].producer;
      return reduction.valid() && graph[reduction].kind == *of.op &&
             operand(*of.split.tensors[0], graph[reduction].inputs[0]);
    }
    case PatternPart::Kind::kMatmul: {
      if (!producer.valid() || graph[producer].kind != OpKind::kDotGeneral) return false;
      // The match may skip the expansion of an operand.
      for (size_t i = 0; i < 2; ++i) {
        const ValueId input = graph[producer].inputs[i];
        const NodeId expand = graph[input].producer;
        const bool expanded = expand.valid() && graph[expand].kind == OpKind::kExpand;
        if (!operand(term.args[i], input) && !(expanded && operand(term.args[i], graph[expand].inputs[0])))
          return false;
      }
      return true;
    }
    case PatternPart::Kind::kComposite: return producer.valid();
  }
  return true;
}

}  // namespace stridec::extend

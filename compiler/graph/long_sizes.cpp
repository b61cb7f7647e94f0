#include "compiler/graph/long_sizes.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/graph/context_sizes.h"
#include "compiler/sym/text.h"

namespace stridec::graph {
namespace {

// A size of more expression nodes than this gets a name. Sizes in common models have up to 20.
constexpr uint32_t kLongest = 24;
constexpr int64_t kLargestSize = int64_t{1} << 40;

// The names are the first nodes of the graph, in pairs: the value and the symbol. They are valid everywhere.
struct Names {
  sym::Substitution symbols;  // by size
  size_t nodes = 0;

  bool has(sym::Expr symbol) const {
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](const auto& name) { return name.second == symbol; });
  }
};

Names names_of(const Graph& graph) {
  Names names;
  const std::vector<NodeId>& top = graph.top.nodes;
  for (; names.nodes + 1 < top.size(); names.nodes += 2) {
    const Node &value = graph[top[names.nodes]], &name = graph[top[names.nodes + 1]];
    if (value.kind != OpKind::kElements || name.kind != OpKind::kSymbolOf || name.inputs != value.outputs)
      break;
    names.symbols.emplace(value.attributes.exprs("elements")[0], name.attributes.expr("symbol"));
  }
  return names;
}

NodeId append(Graph& graph, Node node) {
  graph.nodes.push_back(std::move(node));
  return NodeId(static_cast<int64_t>(graph.nodes.size()) - 1);
}

sym::Expr add_name(Graph& graph, sym::Expr size, const std::string& origin, const MakeSymbol& make,
                   size_t at) {
  const sym::Interval range = graph.facts.bounds(size);
  const sym::Expr lower = std::max<int64_t>(range.lo, 0), upper = std::min(range.hi, kLargestSize);
  const sym::Expr symbol = make(lower, upper);
  if (const int64_t divisor = graph.facts.known_divisor(size); divisor > 1)
    graph.facts.set_divisible(symbol, divisor);
  const ValueId scalar(static_cast<int64_t>(graph.values.size()));
  Value& value = graph.values.emplace_back();
  value.type = {DType::kI64, {}};
  value.elements = {size};
  value.producer =
      append(graph, {.kind = OpKind::kElements,
                     .inputs = {},
                     .outputs = {scalar},
                     .attributes = {{"elements", Shape{size}}, {"shape", Shape{}}, {"dtype", DType::kI64}},
                     .regions = {},
                     .origin = origin});
  const NodeId name =
      append(graph, {.kind = OpKind::kSymbolOf,
                     .inputs = {scalar},
                     .outputs = {},
                     .attributes = {{"symbol", symbol},
                                    {"lower", lower},
                                    {"upper", upper},
                                    {"sentence", cat("a size is {0}, outside ", lower, "..", upper)}},
                     .regions = {},
                     .origin = origin});
  const auto to = graph.top.nodes.begin() + static_cast<std::ptrdiff_t>(at);
  graph.top.nodes.insert(to, {graph[scalar].producer, name});
  return symbol;
}

}  // namespace

sym::Expr short_size(Graph& graph, sym::Expr size, const std::string& origin, const MakeSymbol& make) {
  if (size.size() <= kLongest) return size;
  const Names names = names_of(graph);
  if (const auto known = names.symbols.find(size); known != names.symbols.end()) return known->second;
  for (const Symbol& symbol : graph.symbols) {
    if (is_bound_before_run(graph, symbol) || !sym::depends_on(size, symbol.var)) continue;
    if (!names.has(symbol.var)) return size;
  }
  return add_name(graph, size, origin, make, names.nodes);
}

bool is_size_name(const Graph& graph, sym::Expr symbol) { return names_of(graph).has(symbol); }

}  // namespace stridec::graph

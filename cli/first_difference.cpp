#include "cli/first_difference.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/graph/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using graph::Graph;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

// The graph with these values as its results.
Graph with_results(const Graph& graph, std::span<const NodeId> nodes) {
  Graph cut = graph;
  cut.top.results.clear();
  cut.output_names.clear();
  for (NodeId node : nodes)
    for (ValueId value : graph[node].outputs) {
      cut.output_names.push_back(cat("value", cut.output_names.size()));
      cut.top.results.push_back(value);
    }
  return cut;
}

// The kernels that compute part of a node, and what else they compute.
std::string kernels_with(const loop::Program& program, const std::string& origin) {
  std::string text;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch || !text.empty()) return;
    const loop::Nest& nest = program[launch->nest];
    if (std::find(nest.nodes.begin(), nest.nodes.end(), origin) == nest.nodes.end()) return;
    text = cat(", in kernel '", nest.name, "'");
    std::vector<std::string> others = nest.nodes;
    std::erase(others, origin);
    if (!others.empty()) text += cat(" (fused with ", join(others, ", "), ")");
  });
  return text;
}

// What a node reads, regions included.
void add_uses(const Graph& graph, NodeId id, std::set<ValueId>& uses) {
  const graph::Node& node = graph[id];
  uses.insert(node.inputs.begin(), node.inputs.end());
  for (const graph::Region& region : node.regions) {
    for (const NodeId inner : region.nodes) add_uses(graph, inner, uses);
    uses.insert(region.results.begin(), region.results.end());
  }
}

void replace_uses(Graph& graph, NodeId id, const std::map<ValueId, ValueId>& by) {
  const auto replace = [&](std::vector<ValueId>& list) {
    for (ValueId& value : list)
      if (const auto found = by.find(value); found != by.end()) value = found->second;
  };
  replace(graph[id].inputs);
  for (graph::Region& region : graph[id].regions) {
    for (const NodeId inner : region.nodes) replace_uses(graph, inner, by);
    replace(region.results);
  }
}

using Names = std::set<std::string>;

void add_symbols(sym::Expr e, Names& names) {
  for (const sym::Expr var : sym::free_vars(e)) names.insert(std::string(var.name()));
}

void add_symbols(const graph::Value& value, Names& names) {
  for (const sym::Expr dim : value.type.shape) add_symbols(dim, names);
  if (value.elements)
    for (const sym::Expr each : *value.elements) add_symbols(each, names);
}

// Of the types and attributes of a node, regions included.
void add_symbols(const Graph& graph, NodeId id, Names& names) {
  const graph::Node& node = graph[id];
  for (const auto& [name, attribute] : node.attributes.items()) {
    if (const auto* e = std::get_if<sym::Expr>(&attribute)) add_symbols(*e, names);
    if (const auto* list = std::get_if<std::vector<sym::Expr>>(&attribute))
      for (const sym::Expr each : *list) add_symbols(each, names);
  }
  for (const ValueId value : node.outputs) add_symbols(graph[value], names);
  for (const graph::Region& region : node.regions) {
    for (const ValueId value : region.parameters) add_symbols(graph[value], names);
    for (const NodeId inner : region.nodes) add_symbols(graph, inner, names);
  }
}

class Reducer {
 public:
  Reducer(const DifferenceSearch& search, const FirstDifference& found) : search_(search), found_(found) {
    for (const NodeId id : graph().top.nodes) place_[id] = place_.size();
    for (const NodeId id : graph().top.nodes)
      if (const auto* symbol = graph()[id].attributes.find("symbol"))
        if (const auto* e = std::get_if<sym::Expr>(symbol); e && e->is_var())
          binder_.emplace(std::string(e->name()), id);
  }

  SmallestPart run() {
    std::set<NodeId> part = {found_.node};
    for (size_t distance = 0;; distance = 2 * distance + 1) {
      part = before(distance);
      if (part.size() == before(distance + 1).size()) break;  // all of it
      if (differs(part)) break;
    }
    std::vector<NodeId> order(part.begin(), part.end());
    std::ranges::sort(order, {}, [&](NodeId id) { return place_.at(id); });
    for (const NodeId id : order) {
      if (id == found_.node || out_of_time()) continue;
      std::set<NodeId> smaller = part;
      smaller.erase(id);
      if (differs(smaller)) part = std::move(smaller);
    }
    SmallestPart made = cut(part);
    made.expected = search_reference(made);
    return made;
  }

 private:
  const Graph& graph() const { return search_.made.main().graph; }

  bool out_of_time() const {
    constexpr std::chrono::seconds kEnough(20);
    return std::chrono::steady_clock::now() - start_ > kEnough;
  }

  // The node and all from which it can be reached over so many others.
  std::set<NodeId> before(size_t distance) const {
    std::set<NodeId> part = {found_.node}, edge = part;
    for (size_t i = 0; i < distance && !edge.empty(); ++i) {
      std::set<NodeId> next;
      for (const NodeId id : edge)
        for (const NodeId producer : producers(id))
          if (part.insert(producer).second) next.insert(producer);
      edge = std::move(next);
    }
    return part;
  }

  // Constants are not operations: they stay constants.
  std::vector<NodeId> producers(NodeId id) const {
    std::set<ValueId> uses;
    add_uses(graph(), id, uses);
    std::vector<NodeId> out;
    for (const ValueId value : uses) {
      const NodeId producer = graph()[value].producer;
      if (place_.contains(producer) && graph()[producer].kind != OpKind::kConstant) out.push_back(producer);
    }
    // A size that the run reads from data has the node that reads it.
    Names names;
    add_symbols(graph(), id, names);
    for (const graph::Symbol& symbol : graph().symbols) {
      const auto binder = binder_.find(std::string(symbol.var.name()));
      if (symbol.input < 0 && names.contains(std::string(symbol.var.name())) && binder != binder_.end() &&
          place_.at(binder->second) < place_.at(id))
        out.push_back(binder->second);
    }
    return out;
  }

  bool binds(NodeId id) const {
    return std::ranges::any_of(binder_, [&](const auto& each) { return each.second == id; });
  }

  // Sizes are computed in place, since a tensor that is an input has no known elements.
  void add_sizes(std::set<NodeId>& part) const {
    std::vector<NodeId> open(part.begin(), part.end());
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const NodeId producer : producers(id))
        if (binds(producer) || std::ranges::any_of(graph()[producer].outputs, [&](ValueId v) {
              return graph()[v].elements.has_value();
            }))
          if (part.insert(producer).second) open.push_back(producer);
    }
  }

  SmallestPart cut(std::set<NodeId> part) const {
    add_sizes(part);
    SmallestPart made{.graph = with_results(graph(), {&found_.node, 1}), .nodes = part.size()};
    Graph& cut = made.graph;
    made.inputs = search_.given.inputs;
    std::erase_if(cut.top.nodes,
                  [&](NodeId id) { return !part.contains(id) && cut[id].kind != OpKind::kConstant; });
    std::set<ValueId> uses, parameters(cut.top.parameters.begin(), cut.top.parameters.end());
    for (const NodeId id : part) add_uses(cut, id, uses);
    std::map<ValueId, ValueId> by;
    for (const ValueId value : uses) {
      const NodeId producer = cut[value].producer;
      if (!place_.contains(producer) || part.contains(producer) || cut[producer].kind == OpKind::kConstant)
        continue;
      by[value] = add_input(made, value);
    }
    for (const NodeId id : part) replace_uses(cut, id, by);
    uses.clear();
    for (const NodeId id : part) add_uses(cut, id, uses);
    rebind_symbols(cut, uses);
    remove_inputs(made, uses);
    graph::eliminate_dead_code(cut);
    return made;
  }

  ValueId add_input(SmallestPart& made, ValueId value) const {
    Graph& cut = made.graph;
    const ValueId input{static_cast<uint32_t>(cut.values.size())};
    cut.values.push_back({.name = "", .type = cut[value].type});
    const size_t at = cut.input_names.size();
    cut.top.parameters.insert(cut.top.parameters.begin() + static_cast<std::ptrdiff_t>(at), input);
    const std::string& name = cut[value].name;
    const bool taken = std::ranges::count(cut.input_names, name) > 0;
    cut.input_names.push_back(name.empty() || taken ? cat("value_", value.value) : name);
    cut[input].name = cut.input_names.back();
    made.inputs.push_back(found_.values.at(value));
    return input;
  }

  // Sizes of inputs that nothing reads are those of inputs that are read, where these have them.
  static void rebind_symbols(Graph& cut, const std::set<ValueId>& uses) {
    const auto read = [&](size_t input) { return uses.contains(cut.top.parameters[input]); };
    for (graph::Symbol& symbol : cut.symbols) {
      if (symbol.input < 0 || read(static_cast<size_t>(symbol.input))) continue;
      for (size_t i = 0; i < cut.input_names.size(); ++i) {
        const graph::Shape& shape = cut[cut.top.parameters[i]].type.shape;
        const auto dim = std::ranges::find(shape, symbol.var);
        if (!read(i) || dim == shape.end()) continue;
        symbol.input = static_cast<int>(i), symbol.dim = static_cast<int>(dim - shape.begin());
        symbol.multiple = 1;
        break;
      }
    }
  }

  // Inputs that nothing reads, and whose sizes nothing needs.
  static void remove_inputs(SmallestPart& made, const std::set<ValueId>& uses) {
    Graph& cut = made.graph;
    const Names symbols = symbols_of(cut, uses);
    std::vector<int> place(cut.input_names.size(), -1);
    std::vector<std::string> names;
    std::vector<ValueId> parameters;
    Tensors inputs;
    for (size_t i = 0; i < place.size(); ++i) {
      const bool binds = std::ranges::any_of(cut.symbols, [&](const graph::Symbol& symbol) {
        return symbol.input == static_cast<int>(i) && symbols.contains(std::string(symbol.var.name()));
      });
      if (!binds && !uses.contains(cut.top.parameters[i])) continue;
      place[i] = static_cast<int>(names.size());
      names.push_back(cut.input_names[i]);
      parameters.push_back(cut.top.parameters[i]);
      inputs.push_back(std::move(made.inputs[i]));
    }
    parameters.insert(parameters.end(),
                      cut.top.parameters.begin() + static_cast<std::ptrdiff_t>(place.size()),
                      cut.top.parameters.end());
    cut.top.parameters = std::move(parameters);
    cut.input_names = std::move(names);
    made.inputs = std::move(inputs);
    std::erase_if(cut.symbols, [&](const graph::Symbol& symbol) {
      return symbol.input >= 0 && place[static_cast<size_t>(symbol.input)] < 0;
    });
    for (graph::Symbol& symbol : cut.symbols)
      if (symbol.input >= 0) symbol.input = place[static_cast<size_t>(symbol.input)];
    std::erase_if(cut.guards, [&](const sym::Guard& guard) {
      return std::ranges::any_of(sym::free_vars(guard.condition), [&](sym::Expr var) {
        return std::ranges::none_of(cut.symbols, [&](const graph::Symbol& s) { return s.var == var; });
      });
    });
  }

  // Of what is read; inputs that nothing reads do not count.
  static Names symbols_of(const Graph& cut, const std::set<ValueId>& uses) {
    Names names;
    for (const ValueId input : cut.top.parameters)
      if (uses.contains(input)) add_symbols(cut[input], names);
    for (const NodeId id : cut.top.nodes) add_symbols(cut, id, names);
    return names;
  }

  Tensors search_reference(const SmallestPart& part) const {
    return interpret(reference_of(part.graph), {part.inputs, search_.given.context}, search_.progress);
  }

  // Whether the part differs as the whole does: by its values, or by failing.
  bool differs(const std::set<NodeId>& nodes) const {
    Tensors want;
    std::vector<Allowed> allowed;
    SmallestPart part;
    try {
      part = cut(nodes);
      if (!graph::problems(part.graph, ops::shape_table()).empty()) return false;
      want = search_reference(part);
      allowed = allowed_differences(part.graph, want, search_.tolerance, [&](const Graph& each) {
        return interpret(reference_of(each), {part.inputs, search_.given.context}, search_.progress);
      });
    } catch (const Error&) {
      return false;  // no graph of its own
    }
    try {
      const Tensors got = run_compiled(compile(part.graph, search_.options, Stage::kSchedule),
                                       {part.inputs, search_.given.context});
      for (size_t i = 0; i < got.size(); ++i)
        if (allowed[i].exceeded_by(compare(got[i], want[i]))) return found_.error.empty();
      return false;
    } catch (const Error& error) {
      return error.diagnostic.message == found_.error;
    }
  }

  const DifferenceSearch& search_;
  const FirstDifference& found_;
  std::map<NodeId, size_t> place_;        // of the operations at the top
  std::map<std::string, NodeId> binder_;  // the operation that reads a size from data, by the symbol
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

loop::Program reference_of(const Graph& graph) { return ops::lower(graph); }

Tensors interpret(const loop::Program& program, const Given& given, ProgressPrinter& progress) {
  int64_t total = 0, done = 0;
  loop::for_each_step(program.steps, [&](const loop::Step&) { ++total; });
  progress.update("interpreting", 0, total, "operations");
  return loop::interpret(program, given.inputs,
                         {.after_step =
                              [&](const loop::Step&, const loop::RunState&) {
                                progress.update("interpreting", std::min(++done, total), total, "operations");
                              },
                          .context_sizes = given.context});
}

Tensors run_compiled(const Compilation& made, const Given& given) {
  const codegen::cpu::Variant& variant = made.main().variants.front();
  return codegen::cpu::run_compiled(variant.program, given.inputs,
                                    {.target = variant.target, .context_sizes = given.context});
}

std::optional<FirstDifference> first_difference(const DifferenceSearch& search) {
  const Graph& graph = search.made.main().graph;
  std::vector<NodeId> nodes;
  std::vector<size_t> first;  // index of the first value of each node
  size_t values = 0;
  for (NodeId id : graph.top.nodes) {
    if (graph[id].outputs.empty() || graph[id].kind == OpKind::kConstant) continue;
    nodes.push_back(id);
    first.push_back(values);
    values += graph[id].outputs.size();
  }
  if (nodes.empty()) return std::nullopt;
  const Graph all = with_results(graph, nodes);
  const auto reference = [&](const Graph& g) {
    return interpret(reference_of(g), search.given, search.progress);
  };
  const Tensors want = reference(all);
  const std::vector<Allowed> allowed = allowed_differences(all, want, search.tolerance, reference);
  std::optional<FirstDifference> found;
  const auto differs = [&](size_t n) {
    FirstDifference here{
        .node = nodes[n], .text = "", .difference = {.element = -1}, .error = "", .want = {}};
    bool any = false;
    try {
      const Compilation cut = compile(with_results(graph, {&nodes[n], 1}), search.options, Stage::kSchedule);
      const Tensors got = run_compiled(cut, search.given);
      for (size_t i = 0; i < got.size() && !any; ++i) {
        here.difference = compare(got[i], want[first[n] + i]);
        here.difference.output = i;
        any = allowed[first[n] + i].exceeded_by(here.difference);
      }
    } catch (const Error& error) {
      here.error = error.diagnostic.message;
      any = true;
    }
    if (any) found = std::move(here);
    return any;
  };
  size_t low = 0, high = nodes.size();  // differs(high) is true, or high is the end
  while (low < high) {
    const size_t middle = (low + high) / 2;
    search.progress.update("bisecting", static_cast<int64_t>(nodes.size() - (high - low)),
                           static_cast<int64_t>(nodes.size()), "nodes");
    if (differs(middle))
      high = middle;
    else
      low = middle + 1;
  }
  if (high == nodes.size()) return std::nullopt;
  const graph::Node& node = graph[nodes[high]];
  found->want = want[first[high] + found->difference.output];
  found->text = cat(node.origin.empty() ? "an operation" : node.origin, ", ", graph::name(node.kind),
                    kernels_with(search.made.main().variants.front().program, node.origin));
  for (size_t n = 0; n < nodes.size(); ++n)
    for (size_t i = 0; i < graph[nodes[n]].outputs.size(); ++i)
      found->values.emplace(graph[nodes[n]].outputs[i], want[first[n] + i]);
  return found;
}

SmallestPart smallest_part(const DifferenceSearch& search, const FirstDifference& found) {
  return Reducer(search, found).run();
}

}  // namespace stridec::cli

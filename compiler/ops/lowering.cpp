#include "compiler/ops/lowering.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/graph/context_sizes.h"
#include "compiler/loop/fresh_symbol.h"
#include "compiler/loop/index_length.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/guard.h"

namespace stridec::ops {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using loop::View;

Lowering::Lowering(const Graph& graph, loop::Program& program)
    : graph_(graph), program_(program), names_(program), steps_(&program.steps), views_(graph.values.size()) {
  for (const Node& node : graph.nodes)
    if (node.kind == graph::OpKind::kSymbolOf) unbound_.insert(node.attributes.expr("symbol"));
  uses_.resize(graph.values.size());
  const auto count = [&](const std::vector<ValueId>& values) {
    for (ValueId value : values)
      if (value.valid()) ++uses_[value.value];
  };
  count(graph.top.results);
  for (const Node& node : graph.nodes) {
    if (node.kind == graph::OpKind::kUpdateState)
      ++uses_[node.inputs[1].value];  // the state's own use, as the name of its memory
    else
      count(node.inputs);
    for (const graph::Region& region : node.regions) count(region.results);
  }
}

void Lowering::run() {
  program_.name = graph_.name;
  program_.facts = graph_.facts;
  program_.guards = graph_.guards;
  for (const graph::Symbol& s : graph_.symbols)
    program_.symbols.push_back({.var = s.var, .input = s.input, .dim = s.dim, .multiple = s.multiple});
  auto parameter = [&](const std::string& name, ValueId value, loop::Storage storage, size_t ordinal) {
    const loop::BufferId id = add_buffer(program_,
                                         {.name = name,
                                          .dtype = type(value).dtype,
                                          .shape = type(value).shape,
                                          .strides = {},
                                          .storage = storage,
                                          .ordinal = static_cast<int>(ordinal)},
                                         names_);
    return id;
  };
  for (size_t i = 0; i < graph_.input_names.size(); ++i) {
    const ValueId value = graph_.top.parameters[i];
    program_.inputs.push_back(parameter(graph_.input_names[i], value, loop::Storage::kInput, i));
    views_[value.value] = whole(program_, program_.inputs.back());
  }
  for (size_t i = 0; i < graph_.states.size(); ++i) {
    const graph::State& state = graph_.states[i];
    program_.states.push_back(parameter(state.name, state.value, loop::Storage::kState, i));
    if (state.initial)
      program_[program_.states.back()].weight = {state.initial->owner, state.initial->bytes,
                                                 state.initial->size};
    views_[state.value.value] = whole(program_, program_.states.back());
  }
  for (size_t i = 0; i < graph_.top.results.size(); ++i) {
    const ValueId value = graph_.top.results[i];
    program_.outputs.push_back(parameter(graph_.output_names[i], value, loop::Storage::kOutput, i));
    outputs_.emplace(value, program_.outputs.back());  // the first output if several have this value
  }
  lower_nodes(graph_.top);
  write_outputs();
}

// Copies outputs that are views of other memory or repeat another output. Then assigns the states.
void Lowering::write_outputs() {
  for (size_t i = 0; i < graph_.top.results.size(); ++i) {
    const View& from = view(graph_.top.results[i]);
    if (from.buffer == program_.outputs[i]) continue;
    copy(from, whole(program_, program_.outputs[i]), "output");
    credit(graph_.top.results[i]);
  }
  // A new state value that is a view of another state must be read before any state changes.
  std::vector<std::tuple<ValueId, View, View>> copies;
  for (const auto& [state, value] : updates_) {
    View from = view(value);
    if (is_whole_state(value, from) && from.buffer == view(state).buffer) continue;  // changed in place
    if (program_[from.buffer].storage == loop::Storage::kState) {
      const View held = temporary(type(value), "state");
      copy(from, held, "state");
      credit(value);
      from = held;
    }
    copies.emplace_back(value, from, view(state));
  }
  for (const auto& [value, from, to] : copies) {
    copy(from, to, "update_state");
    credit(value);
  }
}

void Lowering::credit(ValueId value) {
  const graph::NodeId producer = graph_[value].producer;
  if (producer.valid()) credit(graph_[producer], program_.nests.size() - 1);
}

void Lowering::credit(const Node& node, size_t first) {
  if (node.origin.empty()) return;
  const loop::NodeId origin = loop::node_of(node.origin);
  for (size_t i = first; i < program_.nests.size(); ++i) {
    loop::Nest& nest = program_.nests[i];
    if (!nest.nodes.empty()) continue;
    nest.nodes.push_back(node.origin);
    for (loop::ValueInfo& value : nest.values) value.origin = {origin, ++values_of_[origin]};
  }
}

// Sizes that the run binds may be unknown where a part is written.
void Lowering::find_parts(const graph::Region& region) {
  const std::unordered_set<graph::NodeId> nodes(region.nodes.begin(), region.nodes.end());
  const auto known = [&](const graph::Shape& shape) {
    for (const sym::Expr dim : shape)
      for (const sym::Expr symbol : sym::free_vars(dim)) {
        const auto found = std::ranges::find(graph_.symbols, symbol, &graph::Symbol::var);
        if (found == graph_.symbols.end() || !graph::is_bound_before_run(graph_, *found)) return false;
      }
    return true;
  };
  for (const graph::NodeId id : region.nodes) {
    const Node& node = graph_[id];
    if (node.kind != graph::OpKind::kConcat || !known(type(node.outputs[0]).shape)) continue;
    for (const ValueId input : node.inputs)
      if (uses_[input.value] == 1 && nodes.contains(graph_[input].producer)) parts_.emplace(input, id);
  }
}

void Lowering::lower_nodes(const graph::Region& region) {
  find_parts(region);
  for (graph::NodeId id : region.nodes) {
    const Node& node = graph_[id];
    const size_t before = program_.nests.size();
    try {
      op_def(node.kind).lower(*this, node);
    } catch (Error& error) {
      if (error.diagnostic.where.node.empty()) error.diagnostic.where.node = node.origin;
      throw;
    }
    credit(node, before);
  }
}

Lowering::Scope Lowering::enter(loop::Steps& steps) {
  Scope outer{steps_, std::move(scope_elements_)};
  steps_ = &steps;
  scope_elements_.clear();
  return outer;
}

void Lowering::leave(Scope outer) {
  for (ValueId value : scope_elements_) views_[value.value].reset();
  steps_ = outer.steps;
  scope_elements_ = std::move(outer.elements);
}

const View& Lowering::view(ValueId id) {
  std::optional<View>& view = views_[id.value];
  if (view) return *view;
  const graph::Value& value = graph_[id];
  if (value.data) {
    const bool named = value.replaceable;
    const loop::BufferId buffer =
        add_buffer(program_,
                   {.name = value.name.empty() ? cat("c", id.value) : value.name,
                    .dtype = value.type.dtype,
                    .shape = value.type.shape,
                    .strides = {},
                    .storage = loop::Storage::kParameter,
                    .ordinal = named ? static_cast<int>(program_.parameters.size()) : -1,
                    .weight = {value.data->owner, value.data->bytes, value.data->size},
                    .replaceable = named},
                   names_);
    if (named) program_.parameters.push_back(buffer);
    view = whole(program_, buffer);
  } else {
    STRIDEC_CHECK(value.elements, cat("value %", id.value, " is read before it is made"));
    write_elements(id);
  }
  return *view;
}

void Lowering::write_elements(ValueId id) {
  const graph::Value& value = graph_[id];
  const View to = temporary(value.type, value.name.empty() ? "elements" : value.name);
  loop::NestBuilder n = nest("elements");
  std::vector<sym::Expr> at(value.type.shape.size(), 0);
  for (sym::Expr element : *value.elements) {
    n.store(to, at, n.index_value(element, value.type.dtype));
    for (size_t d = at.size(); d-- > 0;) {
      at[d] += 1;
      if (at[d] != value.type.shape[d]) break;
      at[d] = 0;
    }
  }
  n.finish(steps_);
  views_[id.value] = to;
  scope_elements_.push_back(id);
}

std::optional<std::vector<sym::Expr>> Lowering::known(ValueId id) const {
  const std::optional<std::vector<sym::Expr>>& elements = graph_[id].elements;
  if (!elements) return std::nullopt;
  for (sym::Expr element : *elements)
    for (sym::Expr symbol : sym::free_vars(element))
      if (unbound_.contains(symbol)) return std::nullopt;
  return elements;
}

std::optional<loop::Scalar> Lowering::constant_scalar(ValueId id) const {
  const graph::Value& value = graph_[id];
  const bool single = std::all_of(value.type.shape.begin(), value.type.shape.end(),
                                  [](sym::Expr dim) { return dim.is_const(1); });
  const graph::Data* const data = value.known_data();
  if (!single || !data) return std::nullopt;
  if (is_float(value.type.dtype))
    return loop::float_scalar(value.type.dtype, read_float(value.type.dtype, data->bytes));
  return loop::int_scalar(value.type.dtype, read_integer(value.type.dtype, data->bytes));
}

loop::Value Lowering::read(loop::NestBuilder& nest, ValueId id, const std::vector<sym::Expr>& shape,
                           const std::vector<sym::Expr>& at) {
  if (auto scalar = constant_scalar(id)) return nest.constant(*scalar);
  if (const auto elements = known(id); elements && elements->size() == 1)
    return nest.index_value((*elements)[0], type(id).dtype);
  const View& v = view(id);
  return nest.load(v.shape == shape ? v : expand(v, shape, facts()), at);
}

View Lowering::define(ValueId id) {
  std::optional<View>& view = views_[id.value];
  STRIDEC_CHECK(!view, cat("value %", id.value, " is made twice"));
  const graph::Value& value = graph_[id];
  if (auto output = outputs_.find(id); output != outputs_.end())
    view = whole(program_, output->second);
  else
    view = temporary(value.type, value.name.empty() ? cat("t", id.value) : value.name);
  return *view;
}

View Lowering::define_whole(ValueId id) {
  const std::optional<View>& view = views_[id.value];
  return view ? *view : define(id);
}

View Lowering::define_part(ValueId id) {
  const auto found = parts_.find(id);
  if (found == parts_.end()) return define(id);
  const Node& concat = graph_[found->second];
  const ValueId result = concat.outputs[0];
  const View whole = views_[result.value] ? *views_[result.value] : define_part(result);
  const auto dim = static_cast<size_t>(concat.attributes.integer("dim"));
  sym::Expr start = 0;
  for (const ValueId input : concat.inputs) {
    if (input == id) break;
    start += type(input).shape[dim];
  }
  View part = loop::slice(whole, static_cast<int>(dim), start, type(id).shape[dim], 1);
  if (loop::index_length(part) > loop::kLongestIndex) return define(id);
  alias(id, std::move(part));
  in_place_.insert(id);
  return view(id);
}

void Lowering::alias(ValueId id, View view) {
  STRIDEC_CHECK(!views_[id.value], cat("value %", id.value, " is made twice"));
  STRIDEC_CHECK(view.shape.size() == type(id).shape.size());
  view.shape = type(id).shape;  // the same sizes, written as in the graph
  if (loop::index_length(view) > loop::kLongestIndex) return copy(view, define(id), "view");
  views_[id.value] = std::move(view);
}

View Lowering::temporary(const graph::Type& type, const std::string& name) {
  return whole(
      program_,
      add_buffer(program_, {.name = name, .dtype = type.dtype, .shape = type.shape, .strides = {}}, names_));
}

View Lowering::materialise(const View& view, const std::string& name) {
  const loop::Buffer& buffer = program_[view.buffer];
  if (view.shape == buffer.shape && view.index == view.coords && view.mask.is_const(1)) return view;
  const View to = temporary({view.dtype, view.shape}, name);
  copy(view, to, name);
  return to;
}

void Lowering::copy(const View& from, const View& to, const std::string& name) {
  loop::NestBuilder n = nest(name);
  const std::vector<sym::Expr> at = n.dims(to.shape);
  n.store(to, at, n.load(from, at));
  n.finish(steps_);
}

void Lowering::fill(const View& to, loop::Scalar value, const std::string& name) {
  loop::NestBuilder n = nest(name);
  const std::vector<sym::Expr> at = n.dims(to.shape);
  n.store(to, at, n.constant(value));
  n.finish(steps_);
}

void Lowering::bind_symbol(sym::Expr symbol, const View& scalar, sym::Expr lower, sym::Expr upper,
                           std::string sentence, std::vector<sym::Expr> values) {
  View one = scalar;
  for (const sym::Expr dim : program_[scalar.buffer].shape)
    if (!dim.is_const(1)) {
      one = temporary({scalar.dtype, {}}, symbol.name());
      copy(scalar, one, "scalar");
      break;
    }
  unbound_.erase(symbol);
  steps_->push_back(
      {loop::BindSymbol{symbol, one.buffer, lower, upper, std::move(sentence), std::move(values)}});
}

sym::Expr Lowering::fresh_symbol(const std::string& hint, sym::Expr lower, sym::Expr upper) {
  return loop::fresh_symbol(program_, hint, lower, upper, next_symbol_);
}

void Lowering::update_state(ValueId state, ValueId value) {
  if (steps_ != &program_.steps)
    fail(ErrorKind::kUnsupported, "state-in-branch", "a state is updated inside a branch or a loop");
  updates_.emplace_back(state, value);
}

bool Lowering::is_whole_state(ValueId value, const View& view) const {
  const loop::Buffer& buffer = program_[view.buffer];
  return buffer.storage == loop::Storage::kState && view.dtype == type(value).dtype &&
         view.shape == buffer.shape && view.index == view.coords && view.mask.is_const(1);
}

// In place if this node is the only reader of the old value: later reads of the state's memory then mean the
// new value.
View Lowering::changed(ValueId from, ValueId result, const std::string& name) {
  const View old = view(from);
  if (uses_[from.value] == 1 && steps_ == &program_.steps && is_whole_state(from, old)) {
    alias(result, old);
    return old;
  }
  const View to = define(result);
  copy(old, to, name);
  return to;
}

std::string Lowering::origin_prefix(const Node& node) {
  return node.origin.empty() ? "" : sym::escaped(node.origin) + ": ";
}

loop::Program lower(const Graph& graph) {
  loop::Program program;
  Lowering(graph, program).run();
  return program;
}

}  // namespace stridec::ops

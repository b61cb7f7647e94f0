#include "compiler/schedule/fusion/value_graph.h"

#include "compiler/loop/walk.h"

namespace stridec::schedule {

using loop::BufferId;
using loop::Let;
using loop::Load;
using loop::Nest;
using loop::Stmt;
using loop::Store;
using sym::Expr;

ValueGraph::ValueGraph(const loop::Program& program, const loop::Steps& steps, const Flow& flow)
    : program_(program) {
  for (size_t at = 0; at < steps.size(); ++at)
    if (const Nest* nest = nest_at(program, steps, static_cast<int>(at)))
      for (BufferId id : flow.effects(at).writes)
        if (made_once(program, flow, id)) writers_[id] = nest;
}

const Stmt* ValueGraph::definition(const Element& element) const {
  auto [entry, fresh] = definitions_.try_emplace(element.nest);
  if (fresh) entry->second = kernels::definitions_of(element.nest->body);
  const auto found = entry->second.find(element.value);
  return found == entry->second.end() ? nullptr : found->second;
}

template <class T>
const T* ValueGraph::definition_as(const Element& element) const {
  const Stmt* stmt = definition(element);
  return stmt ? std::get_if<T>(&stmt->node) : nullptr;
}

const Let* ValueGraph::let_of(const Element& element) const { return definition_as<Let>(element); }
const Load* ValueGraph::load_of(const Element& element) const { return definition_as<Load>(element); }
const loop::IndexValue* ValueGraph::index_of(const Element& element) const {
  return definition_as<loop::IndexValue>(element);
}

const loop::Reduce* ValueGraph::sum_of(const Element& element, Expr extent) const {
  const auto* reduce = definition_as<loop::Reduce>(element);
  return reduce && reduce->combine == loop::Combine::kSum && reduce->results.size() == 1 &&
                 reduce->dims.size() == 1 && reduce->dims[0].extent == extent
             ? reduce
             : nullptr;
}

std::optional<loop::Scalar> ValueGraph::constant_of(const Element& element) const {
  const auto* constant = definition_as<loop::Constant>(resolve(element, {}));
  return constant ? std::optional(constant->value) : std::nullopt;
}

std::optional<ValueGraph::Element> ValueGraph::stored(const Element& element, const Load& load) const {
  const BufferId id = load.access.buffer;
  const bool local = program_[id].storage == loop::Storage::kLocal;
  const auto writer = writers_.find(id);
  const Nest* nest = local ? element.nest : writer == writers_.end() ? nullptr : writer->second;
  if (!nest || !load.access.mask.is_const(1)) return std::nullopt;
  const Store* store = nullptr;
  // An index that is loaded from memory cannot be expressed by the element's variables.
  bool single = true, data_index = false;
  loop::for_each_stmt(nest->body, [&](const Stmt& stmt) {
    data_index = data_index || std::holds_alternative<loop::Bind>(stmt.node);
    const auto* found = std::get_if<Store>(&stmt.node);
    if (!found || found->access.buffer != id) return;
    single = single && !store;
    store = found;
  });
  if (!store || !single || data_index || store->update || !store->access.mask.is_const(1))
    return std::nullopt;
  // Within its nest a local buffer keeps the values of the dims outside.
  Element out{nest, store->value, local ? element.at : sym::Substitution{}};
  std::set<Expr, sym::ExprLess> bound;
  for (size_t d = 0; d < store->access.index.size(); ++d) {
    const Expr var = store->access.index[d], at = sym::substitute(load.access.index[d], element.at);
    if (var.is_const() && var == at) continue;
    if (!sym::is_index(var) || !bound.insert(var).second) return std::nullopt;
    out.at[var] = at;
  }
  return out;
}

ValueGraph::Element ValueGraph::resolve(Element element, const std::set<BufferId>& stops) const {
  while (true) {
    if (const Let* let = let_of(element); kernels::is_cast(let)) {
      if (!is_float(element.nest->values[let->result.value].dtype) ||
          !is_float(element.nest->values[let->args[0].value].dtype))
        return element;
      element.value = let->args[0];
      continue;
    }
    const Load* load = load_of(element);
    if (!load || stops.contains(load->access.buffer)) return element;
    auto next = stored(element, *load);
    if (!next) return element;
    element = *std::move(next);
  }
}

}  // namespace stridec::schedule

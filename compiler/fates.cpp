#include "compiler/fates.h"

#include <algorithm>

#include "compiler/loop/kernels.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"

namespace stridec {
namespace {

using graph::OpKind;
using package::NodeFate;
using Kind = NodeFate::Kind;

// Per value: known when compiling, because it depends on no input, state, parameter or random number.
std::vector<bool> constants_of(const graph::Graph& graph) {
  std::vector<bool> constant(graph.values.size());
  for (const graph::Node& node : graph.nodes) {
    bool known = node.regions.empty() && node.kind != OpKind::kRandomUniform;
    for (graph::ValueId input : node.inputs) known = known && (!input.valid() || constant[input.value]);
    for (graph::ValueId output : node.outputs) {
      const graph::Value& value = graph[output];
      bool sizes = !value.replaceable;
      if (value.elements)
        for (sym::Expr e : *value.elements) sizes = sizes && e.is_const();
      for (sym::Expr dim : value.type.shape) sizes = sizes && dim.is_const();
      constant[output.value] = known && sizes;
    }
  }
  return constant;
}

}  // namespace

std::vector<NodeTrace::Nature> NodeTrace::natures_of(const graph::Graph& graph) const {
  std::vector<Nature> natures(nodes_.size(), Nature::kNone);
  const std::vector<bool> constant = constants_of(graph);
  for (const graph::Node& node : graph.nodes) {
    const auto place = place_.find(node.origin);
    if (place == place_.end()) continue;
    const auto every = [&](const auto& is) {
      return !node.outputs.empty() && std::ranges::all_of(node.outputs, is);
    };
    Nature nature = Nature::kCompute;
    if (!node.regions.empty())
      nature = Nature::kControl;
    else if (every([&](graph::ValueId id) { return bool(constant[id.value]); }))
      nature = Nature::kConstant;
    else if (node.kind == OpKind::kElements || node.kind == OpKind::kSymbolOf ||
             every([&](graph::ValueId id) { return graph[id].elements.has_value(); }))
      nature = Nature::kSize;
    else if (graph::is_view(node.kind))
      nature = Nature::kView;
    natures[place->second] = std::max(natures[place->second], nature);
  }
  return natures;
}

void NodeTrace::imported(const graph::Graph& graph) {
  if (nodes_.empty()) nodes_ = graph::origins_of(graph);
  seen_.assign(nodes_.size(), {});
  place_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) place_.emplace(nodes_[i].text, i);
  const std::vector<Nature> natures = natures_of(graph);
  for (size_t i = 0; i < nodes_.size(); ++i) seen_[i].nature = natures[i];
}

void NodeTrace::rename(const std::map<std::string, std::string>& names) {
  if (names.empty()) return;
  std::vector<graph::ModelNode> nodes;
  std::vector<Seen> seen;
  place_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    graph::ModelNode node = std::move(nodes_[i]);
    for (std::string* text : {&node.text, &node.with})
      if (const auto name = names.find(*text); name != names.end()) *text = name->second;
    const auto [place, fresh] = place_.emplace(node.text, nodes.size());
    if (fresh) {
      nodes.push_back(std::move(node));
      seen.push_back(std::move(seen_[i]));
    } else {
      nodes[place->second].count += node.count;
      seen[place->second].nature = std::max(seen[place->second].nature, seen_[i].nature);
      seen[place->second].present |= seen_[i].present;
    }
  }
  nodes_ = std::move(nodes), seen_ = std::move(seen);
}

void NodeTrace::mark(std::string_view pass, const std::vector<bool>& present,
                     const std::map<std::string, std::string>& replaced_by) {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i].present && !present[i]) {
      const auto by = replaced_by.find(nodes_[i].text);
      seen_[i].lost = by == replaced_by.end() ? std::string(pass) : by->second;
    }
    seen_[i].present = present[i];
  }
}

void NodeTrace::after(std::string_view pass, const graph::Graph& graph,
                      const std::map<std::string, std::string>& replaced_by) {
  const std::vector<Nature> natures = natures_of(graph);
  std::vector<bool> present(nodes_.size());
  // A node of which only views and constants are left was rewritten: its computation is elsewhere.
  for (size_t i = 0; i < nodes_.size(); ++i)
    present[i] =
        natures[i] != Nature::kNone && (natures[i] >= seen_[i].nature || natures[i] >= Nature::kControl);
  mark(pass, present, replaced_by);
}

void NodeTrace::after(std::string_view pass, const loop::Program& program) {
  std::vector<bool> present(nodes_.size());
  const auto add = [&](const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      if (const auto place = place_.find(text); place != place_.end()) present[place->second] = true;
  };
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) add(program[launch->nest].nodes);
    if (const auto* call = std::get_if<loop::Call>(&step.node)) add(call->nodes);
  });
  for (const loop::NestId nest : program.prepack) add(program[nest].nodes);
  mark(pass, present);
}

package::NodeFate NodeTrace::fate_without_kernel(size_t i) const {
  const graph::ModelNode& node = nodes_[i];
  const Seen& seen = seen_[i];
  NodeFate fate{.node = node.text, .kind = Kind::kDead, .by = seen.lost, .count = node.count};
  const bool imported = seen.nature != Nature::kNone || node.outcome != graph::Outcome::kNodes;
  if (!node.needed || !imported || node.outcome == graph::Outcome::kNone) return fate;
  const bool folded = seen.lost == "import" && node.outcome < graph::Outcome::kShared;
  switch (folded ? Nature::kNone : seen.nature) {
    case Nature::kConstant: fate.kind = Kind::kConstant; return fate;
    case Nature::kSize: fate.kind = Kind::kSize; return fate;
    case Nature::kView: fate.kind = Kind::kView; return fate;
    case Nature::kControl: fate.kind = seen.lost == "lower" ? Kind::kControl : Kind::kRewritten; return fate;
    // An operation without a nest is a view: a gather at constant places.
    case Nature::kCompute: fate.kind = seen.lost == "lower" ? Kind::kView : Kind::kRewritten; return fate;
    case Nature::kNone: break;
  }
  switch (node.outcome) {
    case graph::Outcome::kConstant: fate.kind = Kind::kConstant; break;
    case graph::Outcome::kSize: fate.kind = Kind::kSize; break;
    case graph::Outcome::kAlias: fate.kind = Kind::kView; break;
    default: fate.kind = Kind::kRewritten, fate.with = node.with; break;
  }
  return fate;
}

std::vector<package::NodeFate> NodeTrace::fates(const loop::Program& program) const {
  std::vector<NodeFate> fates;
  for (size_t i = 0; i < nodes_.size(); ++i) fates.push_back(fate_without_kernel(i));
  const auto find = [&](const std::string& text) -> NodeFate* {
    const auto place = place_.find(text);
    return place == place_.end() ? nullptr : &fates[place->second];
  };
  for (const loop::NestId nest : program.prepack)
    for (const std::string& text : program[nest].nodes)
      if (NodeFate* fate = find(text)) fate->kind = Kind::kConstant, fate->by = "constants";
  const auto computed = [&](const std::vector<std::string>& nodes, Kind kind, const std::string& by,
                            int step) {
    for (const std::string& text : nodes)
      if (NodeFate* fate = find(text)) {
        if (fate->steps.empty()) *fate = {.node = text, .kind = kind, .by = by, .count = fate->count};
        fate->steps.push_back(step);
      }
  };
  for (const loop::Kernel& kernel : loop::kernels_of(program))
    computed(kernel.nodes, Kind::kKernel, "", kernel.step);
  for (const loop::Routine& routine : loop::routines_of(program))
    computed(routine.call->nodes, Kind::kRoutine, loop::label_of(routine.call->routine), routine.step);
  return fates;
}

}  // namespace stridec

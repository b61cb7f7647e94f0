#include <map>
#include <set>

#include "cli/diagram.h"
#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Kind = Diagram::Box::Kind;

// Boxes of values and the boxes that make them, while a diagram grows.
template <class Id>
struct Makers {
  Diagram& diagram;
  std::map<Id, size_t> box;  // that made it last
  std::set<std::pair<size_t, size_t>> known = {};

  size_t add(Diagram::Box made) {
    diagram.boxes.push_back(std::move(made));
    return diagram.boxes.size() - 1;
  }
  void connect(Id id, size_t to, const std::string& label) {
    const auto from = box.find(id);
    if (from == box.end() || from->second == to || !known.emplace(from->second, to).second) return;
    diagram.edges.push_back({from->second, to, label});
  }
};

void add_region(const graph::Graph& graph, const graph::Region& region, Makers<int64_t>& makers) {
  for (const graph::NodeId id : region.nodes) {
    const graph::Node& node = graph[id];
    if (node.kind == graph::OpKind::kConstant) continue;
    for (const graph::Region& inner : node.regions) add_region(graph, inner, makers);
    const size_t box = makers.add({std::string(graph::name(node.kind)), node.origin});
    for (const graph::ValueId input : node.inputs)
      if (input.valid()) makers.connect(input.value, box, graph::to_string(graph[input].type));
    for (const graph::Region& inner : node.regions)
      for (const graph::ValueId result : inner.results)
        makers.connect(result.value, box, graph::to_string(graph[result].type));
    for (const graph::ValueId output : node.outputs) makers.box[output.value] = box;
  }
}

struct Touched {
  std::vector<loop::BufferId> reads, writes;
};

void add_nest(const loop::Nest& nest, Touched& touched) {
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node))
      touched.writes.push_back(store->access.buffer);
    if (const auto* load = std::get_if<loop::Load>(&stmt.node)) touched.reads.push_back(load->access.buffer);
  });
}

std::string text_of(const loop::Buffer& buffer) {
  return cat(buffer.name, " ", name(buffer.dtype), "[",
             join(buffer.shape, ", ", [](sym::Expr e) { return sym::to_string(e); }), "]");
}

}  // namespace

Diagram diagram_of(const graph::Graph& graph) {
  Diagram diagram{.name = graph.name};
  Makers<int64_t> makers{diagram, {}};
  for (size_t i = 0; i < graph.top.parameters.size(); ++i) {
    const graph::ValueId id = graph.top.parameters[i];
    makers.box[id.value] = makers.add({graph[id].name, graph::to_string(graph[id].type), Kind::kInput});
  }
  add_region(graph, graph.top, makers);
  for (size_t i = 0; i < graph.top.results.size(); ++i) {
    const graph::ValueId id = graph.top.results[i];
    const std::string type = graph::to_string(graph[id].type);
    makers.connect(id.value, makers.add({graph.output_names[i], type, Kind::kOutput}), type);
  }
  return diagram;
}

Diagram diagram_of(const loop::Program& program) {
  Diagram diagram{.name = program.name};
  Makers<int64_t> makers{diagram, {}};
  for (const auto* values : {&program.inputs, &program.states})
    for (const loop::BufferId id : *values)
      makers.box[id.value] = makers.add({program[id].name, text_of(program[id]), Kind::kInput});
  std::map<int, std::pair<Diagram::Box, Touched>> steps;
  for (const loop::Kernel& kernel : loop::kernels_of(program)) {
    auto& [box, touched] = steps[kernel.step];
    box = {kernel.name, cat("step ", kernel.step, ": ", join(kernel.nodes, ", "))};
    for (const loop::NestId nest : kernel.nests) add_nest(program[nest], touched);
  }
  for (const loop::Routine& routine : loop::routines_of(program)) {
    auto& [box, touched] = steps[routine.step];
    box = {loop::label_of(routine.call->routine),
           cat("step ", routine.step, ": ", join(routine.call->nodes, ", "))};
    touched = {routine.call->reads, routine.call->writes};
  }
  for (auto& [step, made] : steps) {
    const size_t box = makers.add(std::move(made.first));
    for (const loop::BufferId id : made.second.reads) makers.connect(id.value, box, text_of(program[id]));
    for (const loop::BufferId id : made.second.writes) {
      makers.connect(id.value, box, text_of(program[id]));  // several kernels fill it
      makers.box[id.value] = box;
    }
  }
  for (const loop::BufferId id : program.outputs)
    makers.connect(id.value, makers.add({program[id].name, text_of(program[id]), Kind::kOutput}),
                   text_of(program[id]));
  return diagram;
}

}  // namespace stridec::cli

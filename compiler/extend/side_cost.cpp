#include "compiler/extend/side_cost.h"

#include <algorithm>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::Graph;
using graph::ValueId;

// The side alone, over inputs of the types that the variables have. Views of inputs are no operations.
Graph graph_of_side(const Builder& builder, const Rule& rule, const Bindings& bindings,
                    const Operators* operators, bool match) {
  Graph graph;
  graph.facts = builder.graph().facts;
  Builder inner(graph, ops::shape_table());
  Bindings own{.values = {}, .attributes = bindings.attributes};
  std::map<ValueId, ValueId> known;
  for (const Variable& variable : rule.variables) {
    const ValueId value = bindings.values.at(variable.name);
    const auto [at, fresh] = known.emplace(value, ValueId());
    const graph::Data* data = builder.graph()[value].known_data();
    if (fresh)
      at->second = data ? inner.constant("", builder.type(value), *data)
                        : inner.input(variable.name, builder.type(value));
    own.values.emplace(variable.name, at->second);
  }
  Evaluator evaluator(inner, own);
  evaluator.folds = true;
  std::vector<ValueId> results = evaluator.side(rule.match);
  if (!match) results = replacement_of(inner, rule, own, operators);
  graph.top.results = results;
  graph::eliminate_dead_code(graph);
  graph.top.results.clear();
  return graph;
}

class Sum {
 public:
  explicit Sum(const loop::Program& program) : program_(program) {
    loop::for_each_step(program.steps, [&](const loop::Step& step) {
      if (const auto* launch = std::get_if<loop::Launch>(&step.node)) add(program_[launch->nest]);
      if (const auto* call = std::get_if<loop::Call>(&step.node)) add(*call);
    });
  }
  sym::Expr flops = 0, bytes = 0;

 private:
  bool is_constant(loop::BufferId id) const {
    return program_[id].storage == loop::Storage::kParameter || constants_.contains(id);
  }

  // What reads nothing but constants is computed when compiling.
  void add(const loop::Nest& nest) {
    std::set<loop::BufferId> reads, writes;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || program_[access->buffer].storage == loop::Storage::kLocal) return;
      (std::holds_alternative<loop::Load>(stmt.node) ? reads : writes).insert(access->buffer);
    });
    if (std::ranges::all_of(reads,
                            [&](loop::BufferId id) { return is_constant(id) || writes.contains(id); })) {
      constants_.insert(writes.begin(), writes.end());
      return;
    }
    const loop::Cost cost = loop::cost_of(program_, nest);
    flops += cost.flops;
    bytes += cost.bytes_read + cost.bytes_written;
  }

  void add(const loop::Call& call) {
    if (const auto kernel = loop::find_user_kernel(call.routine)) {
      const loop::UserArguments places(*kernel);
      flops += call.arguments[places.last(loop::UserArguments::kFlops)];
      bytes += call.arguments[places.last(loop::UserArguments::kBytes)];
      return;
    }
    for (const auto* list : {&call.reads, &call.writes})
      for (const loop::BufferId id : *list)
        bytes += sym::product(program_[id].shape) * byte_size(program_[id].dtype);
  }

  const loop::Program& program_;
  std::set<loop::BufferId> constants_;
};

}  // namespace

sym::Expr cost_of_side(Builder& builder, const Rule& rule, const Bindings& bindings,
                       const Operators* operators, const Measure& measure) {
  const loop::Program program =
      ops::lower(graph_of_side(builder, rule, bindings, operators, measure.side == "match"));
  const Sum sum(program);
  if (measure.name == "flops") return sum.flops;
  return measure.name == "bytes" ? sum.bytes : sum.flops + sum.bytes;
}

}  // namespace stridec::extend

#include "compiler/schedule/layout/pack_weights.h"

#include <map>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/block_quantized.h"
#include "compiler/kernels/gemm_plan.h"
#include "compiler/kernels/window_plan.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/layout/pack_block_quantized.h"
#include "compiler/sym/text.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::Factor;
using kernels::PanelLayout;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Stmt;
using sym::Expr;

// The packed weight's dims, in order, as variables of the packing nest.
struct Panels {
  std::vector<Dim> dims;
  sym::Substitution from_contraction;  // the contraction's variables in terms of these
  Expr column, columns;                // the flattened column, and the number of columns
  Expr k = 0, depth = 1;               // likewise for k, if it is packed in groups
  Expr inside = 1;                     // where the panels hold weights, not padding
};

Panels panels_of(const Nest& nest, const Contraction& c, const PanelLayout& plan, const Factor& b) {
  Panels panels;
  int next = 0;
  auto add = [&](Expr extent) {
    panels.dims.push_back({sym::var(cat("%i", next++)), extent});
    return panels.dims.back().var;
  };
  for (const Dim& dim : kernels::dims_by_name(nest, c, plan.batch)) {
    if (b.vars.contains(dim.var)) panels.from_contraction[dim.var] = add(dim.extent);
  }
  const std::vector<Dim> columns = kernels::dims_by_name(nest, c, plan.columns);
  panels.columns = 1;
  for (const Dim& dim : columns) panels.columns *= dim.extent;
  const Expr panel = add(sym::ceildiv(panels.columns, plan.panel));
  const std::vector<Dim> k = kernels::dims_by_name(nest, c, plan.k);
  Expr lane = 0;
  for (const Dim& dim : kernels::dims_by_name(nest, c, plan.outer))
    panels.from_contraction[dim.var] = add(dim.extent);
  if (plan.group == 1) {
    for (const Dim& dim : k) panels.from_contraction[dim.var] = add(dim.extent);
    lane = add(plan.width);
    panels.column = panel * plan.panel + lane;
  } else {
    for (const Dim& dim : k) panels.depth *= dim.extent;
    const Expr group = add(sym::floordiv(sym::align_up(panels.depth, plan.step), plan.group));
    lane = add(plan.width);
    panels.column = panel * plan.panel + lane;
    panels.k = group * plan.group + add(plan.group);
    kernels::unflatten(panels.k, k, panels.from_contraction);
  }
  kernels::unflatten(panels.column, columns, panels.from_contraction);
  panels.inside = sym::logical_and(sym::lt(panels.column, panels.columns), sym::lt(panels.k, panels.depth));
  if (plan.width != plan.panel) panels.inside = sym::logical_and(panels.inside, sym::lt(lane, plan.panel));
  return panels;
}

BufferId add_panels(Program& program, const Nest& nest, const Factor& b, const Panels& panels,
                    DType element) {
  std::string source = "weight";
  for (const Stmt* stmt : b.slice) {
    if (const auto* load = std::get_if<loop::Load>(&stmt->node)) source = program[load->access.buffer].name;
  }
  loop::Buffer buffer{.name = source + ".panels", .dtype = element};
  for (const Dim& dim : panels.dims) buffer.shape.push_back(dim.extent);
  buffer.storage = loop::Storage::kParameter;
  buffer.prepacked = true;

  Nest pack{.name = "pack " + source, .nodes = nest.nodes, .dims = panels.dims};
  loop::Cloner cloner(pack);
  for (const auto& [from, to] : panels.from_contraction) cloner.map(from, to);
  const Expr inside = panels.inside;
  for (const Stmt* stmt : b.slice) {
    pack.body.push_back(cloner.clone(nest, *stmt));
    if (auto* load = std::get_if<loop::Load>(&pack.body.back().node)) {
      load->access.mask = sym::logical_and(load->access.mask, inside);
    }
  }
  const BufferId id = loop::add_buffer(program, std::move(buffer));
  loop::ValueId value = cloner.value(b.value);
  if (nest.values[b.value.value].dtype != element) {
    const loop::ValueId narrowed = cloner.fresh_value({element});
    pack.body.push_back({loop::Let{narrowed, loop::ScalarOp::kCast, {value}}});
    value = narrowed;
  }
  if (!b.load) {
    // Beyond the last column the factor's statements may yield any value.
    sym::Facts facts = program.facts;
    for (const Dim& dim : panels.dims) facts.set_index(dim.var, dim.extent);
    if (!facts.holds(inside)) {
      const loop::ValueId in = cloner.fresh_value({DType::kBool}), zero = cloner.fresh_value({element}),
                          selected = cloner.fresh_value({element});
      pack.body.push_back({loop::IndexValue{in, inside}});
      pack.body.push_back({loop::Constant{zero, loop::float_scalar(element, 0)}});
      pack.body.push_back({loop::Let{selected, loop::ScalarOp::kSelect, {in, value, zero}}});
      value = selected;
    }
  }
  loop::Store store{.access = {.buffer = id}, .value = value};
  for (const Dim& dim : panels.dims) store.access.index.push_back(dim.var);
  pack.body.push_back({std::move(store)});
  program.prepack.push_back(loop::add_nest(program, std::move(pack)));
  return id;
}

// The load that replaces the factor: the packed element of the contraction's point.
loop::Access access_of_panels(BufferId id, const Nest& nest, const Contraction& c, const PanelLayout& plan,
                              const Factor& b) {
  loop::Access access{.buffer = id};
  for (const Dim& dim : kernels::dims_by_name(nest, c, plan.batch)) {
    if (b.vars.contains(dim.var)) access.index.push_back(dim.var);
  }
  const Expr column = kernels::flattened(kernels::dims_by_name(nest, c, plan.columns));
  access.index.push_back(sym::floordiv(column, plan.panel));
  access.index.insert(access.index.end(), plan.outer.begin(), plan.outer.end());
  if (plan.group == 1) {
    for (Expr var : plan.k) access.index.push_back(var);
    access.index.push_back(sym::mod(column, plan.panel));
    return access;
  }
  const Expr k = kernels::flattened(kernels::dims_by_name(nest, c, plan.k));
  access.index.push_back(sym::floordiv(k, plan.group));
  access.index.push_back(sym::mod(column, plan.panel));
  access.index.push_back(sym::mod(k, plan.group));
  return access;
}

}  // namespace

void pack_weights(Program& program) {
  std::map<std::string, BufferId> made;
  std::vector<loop::NestId> launched;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) launched.push_back(launch->nest);
  });
  for (loop::NestId id : launched) {
    pack_block_quantized(program, id, made);
    const auto layout = kernels::panels_of(program[id].schedule);
    if (!layout) continue;
    const PanelLayout& plan = *layout;
    const auto contraction = kernels::match_contraction(program[id]);
    STRIDEC_CHECK(contraction.has_value(), program[id].name);
    const std::vector<Expr> rows = plan.along ? std::vector{*plan.along} : plan.rows;
    const size_t side = kernels::side_of_columns(*contraction, rows, plan.columns);
    const auto elements = kernels::as_elements(program[id], contraction->factors[side], plan.element);
    STRIDEC_CHECK(elements.has_value(), program[id].name);
    const Factor& b = *elements;
    if (b.load && program[b.load->access.buffer].name.ends_with(".panels")) continue;  // packed before
    const Panels panels = panels_of(program[id], *contraction, plan, b);
    const auto [found, fresh] = made.emplace(
        cat(name(plan.element), " ", contents(panels.dims, b.slice, panels.from_contraction, program[id])),
        BufferId());
    if (fresh) {
      const Nest copy = program[id];
      const auto matched = kernels::match_contraction(copy);
      found->second =
          add_panels(program, copy, *kernels::as_elements(copy, matched->factors[side], plan.element), panels,
                     plan.element);
    }
    // add_panels moved the program's nests.
    Nest& nest = program[id];
    const auto now = kernels::match_contraction(nest);
    loop::Access access = access_of_panels(found->second, nest, *now, plan, now->factors[side]);
    auto& reduce = std::get<loop::Reduce>(nest.body[now->at].node);
    const loop::ValueId element = loop::add_value(nest, plan.element);
    const bool widens = plan.element != now->dtype;
    const loop::ValueId factor = widens ? loop::add_value(nest, now->dtype) : element;
    for (size_t i = 0; i < reduce.body.size(); ++i) {
      auto* product = std::get_if<loop::Let>(&reduce.body[i].node);
      if (!product || product->result != reduce.yields[0]) continue;
      product->args[side] = factor;
      auto at = reduce.body.begin() + static_cast<std::ptrdiff_t>(i);
      if (widens) at = reduce.body.insert(at, {loop::Let{factor, loop::ScalarOp::kCast, {element}}});
      reduce.body.insert(at, {loop::Load{element, std::move(access), loop::float_scalar(plan.element, 0)}});
      break;
    }
    loop::eliminate_dead(nest);
  }
}

}  // namespace stridec::schedule

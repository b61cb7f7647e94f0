#include "compiler/schedule/layout/loop_operands.h"

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/build.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Step;
using loop::Steps;
using sym::Expr;

constexpr double kIterations = 4;     // least of the loop
constexpr double kLargeBytes = 4096;  // a smaller matrix stays in L1 in any layout
constexpr int64_t kPanels[] = {32, 16, 8};

// The matrix as a nest reads it.
struct LoopOperand {
  loop::Load load;
  Dim column;
  std::vector<Dim> depth;
  int64_t panel;
};

std::optional<LoopOperand> operand_of(const Program& program, const Nest& nest,
                                      const std::set<BufferId>& written) {
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction || contraction->dtype != DType::kF32) return std::nullopt;
  const sym::Facts facts = kernels::facts_in(program, nest, *contraction);
  const std::vector<Dim>& depth = contraction->reduce->dims;
  for (int side = 0; side < 2; ++side) {
    const kernels::Factor &factor = contraction->factors[side], &other = contraction->factors[1 - side];
    if (!factor.load || factor.slice.size() != 1 || !factor.load->access.mask.is_const(1)) continue;
    const loop::Buffer& buffer = program[factor.load->access.buffer];
    if (buffer.dtype != DType::kF32 || buffer.storage == loop::Storage::kParameter ||
        buffer.storage == loop::Storage::kLocal || written.contains(factor.load->access.buffer))
      continue;
    std::vector<Dim> columns, rows;
    bool plain = true;
    for (const Dim& dim : nest.dims) {
      const bool here = factor.vars.contains(dim.var), there = other.vars.contains(dim.var);
      plain = plain && !(here && there);
      if (here) columns.push_back(dim);
      if (there) rows.push_back(dim);
    }
    for (const Dim& dim : depth) plain = plain && factor.vars.contains(dim.var) && dim.extent.is_const();
    for (Expr at : factor.load->access.index)
      for (Expr var : sym::free_vars(at)) plain = plain && factor.vars.contains(var);
    if (!plain || columns.size() != 1 || !columns[0].extent.is_const()) continue;
    const int64_t count = columns[0].extent.value();
    const auto panel = std::ranges::find_if(kPanels, [&](int64_t width) { return count % width == 0; });
    if (panel == std::end(kPanels) || count == *panel ||
        static_cast<double>(count) < typical_points(rows, facts) ||
        static_cast<double>(count) * typical_points(depth, facts) * byte_size(buffer.dtype) < kLargeBytes)
      continue;
    return LoopOperand{*factor.load, columns[0], depth, *panel};
  }
  return std::nullopt;
}

// Makes the nest read a copy in panels; returns the nest that makes the copy.
Nest pack(Program& program, Nest& nest, const LoopOperand& operand) {
  const Dim outer{sym::var(cat(operand.column.var.name(), ".o")),
                  operand.column.extent.value() / operand.panel};
  const Dim inner{sym::var(cat(operand.column.var.name(), ".i")), operand.panel};
  std::vector<Dim> dims = {outer};
  dims.insert(dims.end(), operand.depth.begin(), operand.depth.end());
  dims.push_back(inner);
  loop::Buffer buffer{.name = cat(program[operand.load.access.buffer].name, ".panels"), .dtype = DType::kF32};
  loop::Access panels;
  for (const Dim& dim : dims) {
    buffer.shape.push_back(dim.extent);
    panels.index.push_back(dim.var);
  }
  panels.buffer = loop::add_buffer(program, std::move(buffer));
  loop::Access from = operand.load.access;
  const Expr column = outer.var * operand.panel + inner.var;
  loop::substitute(from, {{operand.column.var, column}});
  Nest copy = loop::copy_nest("panels", dims, from, operand.load.fill, panels);
  copy.nodes = nest.nodes;
  loop::attribute(copy, loop::node_of(nest, operand.load.result));
  loop::renumber(copy);

  const auto at = std::ranges::find(nest.dims, operand.column.var, &Dim::var);
  nest.dims.insert(at, {outer, inner});
  loop::replace_dim(nest, operand.column.var, column);
  loop::redirect(nest, operand.load.result, panels);
  loop::clean(program, nest);
  return copy;
}

int launches_of(const Program& program, loop::NestId id) {
  int count = 0;
  loop::for_each_step(program.steps, [&](const Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    count += launch && launch->nest == id;
  });
  return count;
}

void pack_in(Program& program, Steps& steps) {
  for (size_t at = 0; at < steps.size(); ++at) {
    const auto* loop = std::get_if<loop::While>(&steps[at].node);
    if (!loop || typical(loop->trip_count, program.facts) < kIterations) continue;
    std::set<BufferId> written;
    std::set<loop::NestId> launched;
    const Steps one = {steps[at]};
    loop::for_each_step(one, [&](const Step& step) {
      const Effects effects = effects_of(program, step);
      written.insert(effects.writes.begin(), effects.writes.end());
      if (const auto* launch = std::get_if<loop::Launch>(&step.node)) launched.insert(launch->nest);
    });
    const std::set<loop::NestId> grouped = loop::launched_in_groups(program);
    for (const loop::NestId id : launched) {
      if (grouped.contains(id) || launches_of(program, id) != 1) continue;
      const auto operand = operand_of(program, program[id], written);
      if (!operand) continue;
      Nest nest = program[id];
      Nest copy = pack(program, nest, *operand);
      program[id] = std::move(nest);
      const loop::Launch made{loop::add_nest(program, std::move(copy))};
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), Step{made});
      ++at;
    }
  }
}

}  // namespace

void pack_loop_operands(Program& program) { pack_in(program, program.steps); }

}  // namespace stridec::schedule

#include "compiler/schedule/heuristics/window.h"

#include <algorithm>
#include <cmath>

#include "compiler/kernels/gemm_plan.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/gemm_cost.h"

namespace stridec::schedule {
namespace {

using kernels::Factor;
using loop::Dim;
using sym::Expr;

constexpr int64_t kMostTaps = 64;
constexpr double kGroupOfOutputs = 20;  // cycles: addresses, loop ends

bool weights_alone(const loop::Program& program, const Factor& b) {
  bool constant = true;
  for (const loop::Stmt* stmt : b.slice) {
    loop::for_each_expr(*stmt, [&](Expr e) {
      for (Expr var : sym::free_vars(e)) constant = constant && sym::is_index(var);
    });
    if (const auto* load = std::get_if<loop::Load>(&stmt->node)) {
      constant = constant && program[load->access.buffer].storage == loop::Storage::kParameter;
    }
  }
  return constant;
}

// The groups, and the output and input channels of a group if there are several.
struct Groups {
  Dim group;
  std::optional<Dim> output, input;

  std::vector<Dim> columns() const { return output ? std::vector{group, *output} : std::vector{group}; }
  int64_t outputs() const { return output ? output->extent.value() : 1; }
  int64_t inputs() const { return input ? input->extent.value() : 1; }
};

// Whether the data's channels are contiguous, group by group, and so are the results.
bool lie_in_order(const loop::Program& program, const loop::Nest& nest, const Groups& groups,
                  const loop::Access& data, const sym::Facts& facts) {
  const Expr offset = kernels::offset_of(program, data, facts);
  const std::vector<Dim> channels =
      groups.input ? std::vector{groups.group, *groups.input} : std::vector{groups.group};
  const auto step = kernels::merged_step(offset, channels, facts);
  if (!step || !step->is_const(1) || depends_on_any(data.mask, channels)) return false;
  const std::vector<Dim> columns = groups.columns();
  return std::all_of(nest.body.begin(), nest.body.end(), [&](const loop::Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access) {
      bool free = loop::body_of(stmt) || columns.size() == 1;
      if (!free) {
        free = true;
        loop::for_each_expr(stmt, [&](Expr e) { free = free && !depends_on_any(e, columns); });
      }
      return free;
    }
    const bool store = std::holds_alternative<loop::Store>(stmt.node);
    if (!store && columns.size() == 1) return true;
    const auto along = kernels::merged_step(kernels::offset_of(program, *access, facts), columns, facts);
    return along && !depends_on_any(access->mask, columns) && (!store || along->is_const(1));
  });
}

// Whether the mask consists of bounds on the row's part of the index plus constants per output and tap.
bool mask_is_simple(Expr mask, const std::vector<Expr>& vars) {
  const auto one = [&](Expr condition) {
    if (condition.op() != sym::Op::kLt && condition.op() != sym::Op::kLe) return false;
    const auto form = kernels::linear_form(condition.arg(1) - condition.arg(0), vars);
    return form && std::all_of(form->coefficients.begin(), form->coefficients.end(),
                               [](Expr c) { return c.is_const(); });
  };
  if (mask.is_const(1)) return true;
  if (mask.op() != sym::Op::kAnd) return one(mask);
  return std::all_of(mask.args().begin(), mask.args().end(), one);
}

// A kernel that fits the factors, and the factors in the form it takes.
struct Match {
  const kernels::WindowKernel* kernel;
  Factor a, b;
};

std::vector<Match> match_kernels(const loop::Program& program, const loop::Nest& nest,
                                 const kernels::Contraction& contraction, const CpuTarget& target) {
  std::vector<Match> matches;
  for (int side = 0; side < 2; ++side) {
    for (const kernels::WindowKernel& kernel : kernels::window_kernels()) {
      if (kernel.dtype != contraction.dtype || !kernel.runs_on(target)) continue;
      const auto a = kernels::as_elements(nest, contraction.factors[side], kernel.a),
                 b = kernels::as_elements(nest, contraction.factors[1 - side], kernel.b);
      if (a && a->load && b && weights_alone(program, *b)) matches.push_back({&kernel, *a, *b});
    }
  }
  return matches;
}

// Whether the channels that share one of the kernel's lanes are neighbouring channels of a group.
bool has_channels_beside(const kernels::WindowKernel& kernel, const Groups& groups) {
  return kernel.group() > 1 && groups.inputs() > 1 && groups.inputs() % kernel.group() == 0;
}

// Kernels that multiply pairs of bf16 are for pairs of channels, and only where they are faster than f32
// kernels.
bool serves(const kernels::WindowKernel& kernel, const Groups& groups, const CpuTarget& target) {
  return kernel.b != DType::kBF16 || (has_channels_beside(kernel, groups) &&
                                      target.bf16_dots_per_cycle * kernel.group() > target.fma_per_cycle);
}

// Moves the taps that share lanes from plan.taps to plan.beside: all but those along the dim with the
// smallest step, along which the outputs run.
void choose_beside(kernels::WindowPlan& plan, const kernels::Contraction& contraction, Expr row,
                   const sym::Facts& facts) {
  const auto form = kernels::linear_form(row, plan.taps);
  const auto is_one = [&](Expr var) {
    return std::any_of(contraction.reduce->dims.begin(), contraction.reduce->dims.end(),
                       [&](const Dim& dim) { return dim.var == var && dim.extent.is_const(1); });
  };
  std::optional<size_t> least;
  size_t several = 0;
  for (size_t d = 0; form && d < plan.taps.size(); ++d) {
    if (is_one(plan.taps[d])) continue;
    ++several;
    if (!least || facts.holds(sym::lt(form->coefficients[d], form->coefficients[*least]))) least = d;
  }
  for (size_t d = 0; d < plan.taps.size(); ++d)
    if (several < 2 || d != *least) plan.beside.push_back(plan.taps[d]);
  std::erase_if(plan.taps, [&](Expr var) {
    return std::find(plan.beside.begin(), plan.beside.end(), var) != plan.beside.end();
  });
}

// As many outputs as registers allow with little waste at the end of the row.
int outputs_for(Expr extent, const CpuTarget& target) {
  const int most = target.vector_registers >= 32 ? 8 : 6;
  const auto known = sym::as_const(extent);
  if (!known) return most;
  int best = most;
  auto padded = [&](int n) { return (*known + n - 1) / n * n; };
  for (int n = most; n >= 4; --n) {
    if (padded(n) < padded(best)) best = n;
  }
  return static_cast<int>(std::min<int64_t>(best, std::max<int64_t>(1, *known)));
}

struct Problem {
  const loop::Program& program;
  const loop::Nest& nest;
  const kernels::Contraction& contraction;
  const CpuTarget& target;
  sym::Facts facts;
};

// The nest's dims by the factors that they index. own: not the weights; shared: both; columns: the weights
// alone.
struct Roles {
  std::vector<Dim> own, shared, columns;
};

Roles roles_of(const loop::Nest& nest, const Match& match) {
  Roles roles;
  for (const Dim& dim : nest.dims) {
    const bool in_a = match.a.vars.contains(dim.var), in_b = match.b.vars.contains(dim.var);
    (!in_b ? roles.own : in_a ? roles.shared : roles.columns).push_back(dim);
  }
  return roles;
}

// Finds the groups and sets plan.taps. `offset`: the data's. Returns nothing if there is not exactly one
// shared dim, if there are several columns, if a size of the groups is not constant, or if the data or the
// results do not lie in the order of the groups.
std::optional<Groups> find_groups(const Problem& p, const loop::Access& data, const Roles& roles, Expr offset,
                                  kernels::WindowPlan& plan) {
  const std::vector<Dim>&shared = roles.shared, &columns = roles.columns;
  if (shared.size() != 1 || !shared[0].extent.is_const() || columns.size() > 1) return std::nullopt;
  Groups groups{.group = shared[0], .output = {}, .input = {}};
  if (!columns.empty()) groups.output = columns[0];
  const auto to_next = sym::linear_in(offset, groups.group.var);
  for (const Dim& dim : p.contraction.reduce->dims) {
    const auto step = sym::linear_in(offset, dim.var);
    const bool input = step && step->coefficient.is_const(1) && to_next &&
                       to_next->coefficient == dim.extent && !dim.extent.is_const(1);
    if (input)
      groups.input = dim;
    else
      plan.taps.push_back(dim.var);
  }
  if ((groups.output && !groups.output->extent.is_const()) ||
      (groups.input && !groups.input->extent.is_const()) ||
      !lie_in_order(p.program, p.nest, groups, data, p.facts))
    return std::nullopt;
  return groups;
}

bool has_few_taps(const kernels::Contraction& contraction, const Groups& groups) {
  int64_t taps = 1;
  for (const Dim& dim : contraction.reduce->dims) {
    if (groups.input && dim.var == groups.input->var) continue;
    const int64_t extent = sym::as_const(dim.extent).value_or(kMostTaps + 1);
    if (extent < 1 || extent > kMostTaps) return false;
    taps *= extent;
    if (taps > kMostTaps) return false;
  }
  return true;
}

// Columns of a panel; 0 if the target has no vectors for the groups.
int64_t panel_of(const kernels::WindowKernel& kernel, const Groups& groups, const CpuTarget& target) {
  const int lanes = target.lanes(byte_size(DType::kF32));
  const int64_t together = has_channels_beside(kernel, groups) ? kernel.group() : 1;  // channels of a lane
  const int64_t in_vector =
      std::min(lanes / std::max(groups.outputs(), groups.inputs() / together), groups.group.extent.value());
  if (in_vector < 1) return 0;
  const int64_t panel = groups.outputs() == 1 && groups.inputs() == 1 ? lanes : in_vector * groups.outputs();
  if (!groups.output && !groups.input) return panel;
  // Lanes are permuted, and partly used vectors are masked.
  const bool whole = panel == lanes && in_vector * groups.inputs() == lanes * together;
  return lanes < 8 || (!target.avx512 && !whole) ? 0 : panel;
}

// The dim among `own` along which the outputs run that are computed together: the one with the smallest step
// that the address allows. `row`: the data's offset in the first channel.
std::optional<size_t> dim_along(const Problem& p, const Factor& data, const std::vector<Dim>& own, Expr row,
                                const std::vector<Expr>& taps) {
  const Expr mask = sym::simplify(data.load->access.mask, p.facts);
  for (size_t d = own.size(); d-- > 0;) {
    if (!data.vars.contains(own[d].var) || own[d].extent.is_const(1)) continue;
    std::vector<Expr> vars = {own[d].var};
    vars.insert(vars.end(), taps.begin(), taps.end());
    const auto form = kernels::linear_form(row, vars);
    const bool uniform =
        form && std::none_of(form->coefficients.begin(), form->coefficients.end(), sym::has_index);
    if (uniform && mask_is_simple(mask, vars)) return d;
  }
  return std::nullopt;
}

// Vectors of a task. There are enough tasks for the threads, even with few rows.
int64_t vectors_for(const Problem& p, const Groups& groups, int64_t panel, double rows) {
  const double tasks = is_in_tiled_group(p.program, p.nest) ? 1 : 32;
  const int64_t vectors = (groups.group.extent.value() * groups.outputs() + panel - 1) / panel;
  const auto parts = static_cast<int64_t>(std::ceil(tasks / rows));
  return std::max<int64_t>(1, (vectors + parts - 1) / parts);
}

std::optional<kernels::WindowPlan> plan_for(const Problem& p, const Match& match) {
  const kernels::WindowKernel& kernel = *match.kernel;
  kernels::WindowPlan plan{.kernel = &kernel, .lanes = p.target.lanes(byte_size(DType::kF32))};
  const loop::Access& data = match.a.load->access;
  const Expr offset = kernels::offset_of(p.program, data, p.facts);
  const Roles roles = roles_of(p.nest, match);
  const auto groups = find_groups(p, data, roles, offset, plan);
  if (!groups || !has_few_taps(p.contraction, *groups) || !serves(kernel, *groups, p.target))
    return std::nullopt;
  plan.panel = panel_of(kernel, *groups, p.target);
  if (plan.panel == 0) return std::nullopt;

  Expr row = sym::substitute(offset, groups->group.var, 0);
  if (groups->input) row = sym::substitute(row, groups->input->var, 0);
  const auto along = dim_along(p, match.a, roles.own, row, plan.taps);
  if (!along) return std::nullopt;
  plan.along = roles.own[*along].var;
  for (const Dim& dim : groups->columns()) plan.columns.push_back(dim.var);
  if (groups->input) plan.channel = groups->input->var;
  if (has_channels_beside(kernel, *groups))
    plan.beside = {groups->input->var};
  else if (kernel.group() > 1)
    choose_beside(plan, p.contraction, row, p.facts);
  plan.outputs = outputs_for(roles.own[*along].extent, p.target);
  double rows = 1;
  for (size_t d = 0; d < roles.own.size(); ++d) {
    if (d == *along) continue;
    plan.rows.push_back(roles.own[d].var);
    rows *= std::max(1.0, typical(roles.own[d].extent, p.facts));
  }
  plan.vectors = vectors_for(p, *groups, plan.panel, rows);
  return plan;
}

}  // namespace

std::optional<kernels::WindowPlan> choose_window(const loop::Program& program, const loop::Nest& nest,
                                                 const kernels::Contraction& contraction,
                                                 const CpuTarget& target) {
  const Problem problem{program, nest, contraction, target, kernels::facts_in(program, nest, contraction)};
  for (const Match& match : match_kernels(program, nest, contraction, target))
    if (auto plan = plan_for(problem, match)) return plan;
  return std::nullopt;
}

double window_cycles(const loop::Program& program, const loop::Nest& nest,
                     const kernels::Contraction& contraction, const kernels::WindowPlan& plan,
                     const CpuTarget& target) {
  const sym::Facts facts = kernels::facts_in(program, nest, contraction);
  const auto size = [&](Expr var) {
    return std::max(1.0, typical(kernels::dims_by_name(nest, contraction, {var})[0].extent, facts));
  };
  double rows = 1, columns = 1, taps = 1;
  for (Expr var : plan.rows) rows *= size(var);
  for (Expr var : plan.columns) columns *= size(var);
  for (Expr var : plan.taps) taps *= size(var);
  double beside = 1;
  for (Expr var : plan.beside) beside *= size(var);
  const double lane = plan.channels_beside() ? 1 : plan.kernel->group();
  if (!plan.channels_beside()) taps *= std::ceil(beside / lane);
  const double channels = plan.channels_beside() ? beside / plan.kernel->group()
                          : plan.channel         ? size(*plan.channel)
                                                 : 1;
  const bool permutes = plan.columns.size() > 1 || plan.channel;
  const double vectors = std::ceil(columns / static_cast<double>(plan.panel)), outputs = plan.outputs;
  // Neighbouring outputs share most of a row's elements.
  const double inputs = outputs * taps / 2;
  const double rate = plan.kernel->b == DType::kBF16 ? target.bf16_dots_per_cycle : target.fma_per_cycle;
  const double products = outputs * taps / rate;
  const double loads = (inputs * lane + taps) * target.vector_bytes / target.load_bytes_per_cycle;
  const double shuffles = inputs * ((permutes ? 1 : 0) + lane - 1);
  const double sums = channels * std::max({products, loads, shuffles});
  const double tile = kGroupOfOutputs + sums + outputs * kEpilogueVector;
  return rows * std::ceil(size(plan.along) / outputs) * vectors * tile;
}

std::vector<kernels::WindowPlan> window_space(const loop::Program& program, const loop::Nest& nest,
                                              const kernels::Contraction& contraction,
                                              const CpuTarget& target) {
  const auto chosen = choose_window(program, nest, contraction, target);
  if (!chosen) return {};
  std::vector<kernels::WindowPlan> space = {*chosen};
  const int most = target.vector_registers >= 32 ? 8 : 6;
  for (const int outputs : {2, 3, 4, 5, 6, 7, 8}) {
    if (outputs > most || outputs == chosen->outputs) continue;
    space.push_back(*chosen);
    space.back().outputs = outputs;
  }
  for (const int64_t vectors : {chosen->vectors * 2, chosen->vectors / 2, chosen->vectors * 4}) {
    if (vectors < 1) continue;
    space.push_back(*chosen);
    space.back().vectors = vectors;
  }
  return space;
}

}  // namespace stridec::schedule

#include "compiler/schedule/choose_window.h"

#include <algorithm>
#include <cmath>

#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_contraction.h"

namespace stridec::schedule {
namespace {

using kernels::Factor;
using loop::Dim;
using sym::Expr;

constexpr int64_t kMostTaps = 64;

bool weights_alone(const loop::Program& program, const Factor& b) {
  bool constant = true;
  for (const loop::Stmt* stmt : b.slice) {
    loop::for_each_expr(*stmt, [&](Expr e) {
      for (Expr var : sym::free_vars(e)) constant = constant && sym::is_index(var);
    });
    if (const auto* load = std::get_if<loop::Load>(&stmt->node)) {
      constant = constant && program[load->access.buffer].storage == loop::Storage::kWeight;
    }
  }
  return constant;
}

bool has_unit_step(const loop::Program& program, const loop::Access& access, Expr var,
                   const sym::Facts& facts) {
  const auto linear = sym::linear_in(kernels::offset_of(program, access, facts), var);
  return linear && linear->coefficient.is_const(1) && !sym::depends_on(access.mask, var);
}

// Bounds on sums of the row's part and constants per output and tap.
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

// As many outputs as registers allow and the row wastes little of.
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

}  // namespace

std::optional<kernels::WindowPlan> choose_window(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target) {
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction || contraction->dtype != DType::kF32) return std::nullopt;
  const sym::Facts facts = kernels::facts_in(program, nest, *contraction);
  for (int side = 0; side < 2; ++side) {
    const Factor &a = contraction->factors[side], &b = contraction->factors[1 - side];
    if (!a.load || a.load->fill.f != 0 || std::signbit(a.load->fill.f) || !weights_alone(program, b))
      continue;
    kernels::WindowPlan plan;
    std::vector<Dim> own, shared;
    bool fits = true;
    for (const Dim& dim : nest.dims) {
      const bool in_a = a.vars.contains(dim.var), in_b = b.vars.contains(dim.var);
      if (in_b && !in_a) fits = false;
      (in_b ? shared : own).push_back(dim);
    }
    if (!fits || shared.size() != 1 || !shared[0].extent.is_const()) continue;
    const Expr column = shared[0].var;
    fits = has_unit_step(program, a.load->access, column, facts);
    for (const loop::Stmt& stmt : nest.body) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store) fits = fits && has_unit_step(program, store->access, column, facts);
    }
    int64_t taps = 1;
    for (const Dim& dim : contraction->reduce->dims) {
      plan.taps.push_back(dim.var);
      const int64_t extent = sym::as_const(dim.extent).value_or(kMostTaps + 1);
      taps = extent < 1 || extent > kMostTaps ? kMostTaps + 1 : taps * extent;
      if (taps > kMostTaps) break;
    }
    if (!fits || taps > kMostTaps) continue;

    // The outputs of a group lie along the dim with the smallest step that the address allows.
    const Expr offset = sym::substitute(kernels::offset_of(program, a.load->access, facts), column, 0);
    const Expr mask = sym::simplify(a.load->access.mask, facts);
    std::optional<size_t> along;
    for (size_t d = own.size(); d-- > 0 && !along;) {
      if (!a.vars.contains(own[d].var) || own[d].extent.is_const(1)) continue;
      std::vector<Expr> vars = {own[d].var};
      vars.insert(vars.end(), plan.taps.begin(), plan.taps.end());
      const auto form = kernels::linear_form(offset, vars);
      const bool uniform =
          form && std::none_of(form->coefficients.begin(), form->coefficients.end(), sym::has_index);
      if (uniform && mask_is_simple(mask, vars)) along = d;
    }
    if (!along) continue;
    plan.along = own[*along].var;
    plan.columns = column;
    plan.panel = target.lanes(byte_size(DType::kF32));
    plan.outputs = outputs_for(own[*along].extent, target);
    double rows = 1;
    for (size_t d = 0; d < own.size(); ++d) {
      if (d == *along) continue;
      plan.rows.push_back(own[d].var);
      rows *= std::max(1.0, typical(own[d].extent, facts));
    }
    // Enough tasks to share, also where there are few rows.
    constexpr double kTasks = 32;
    const int64_t vectors = (shared[0].extent.value() + plan.panel - 1) / plan.panel;
    const auto groups = static_cast<int64_t>(std::ceil(kTasks / rows));
    plan.vectors = std::max<int64_t>(1, (vectors + groups - 1) / groups);
    return plan;
  }
  return std::nullopt;
}

std::vector<kernels::WindowPlan> window_space(const loop::Program& program, const loop::Nest& nest,
                                              const CpuTarget& target) {
  const auto chosen = choose_window(program, nest, target);
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

// What a nest costs as loops, with lanes along one dim or another: the analytic model behind loop_nest.h. Cycles of
// one core, roughly: what matters is their order.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::schedule {

constexpr double kLoopOverhead = 3;  // of a step

class LoopCost {
 public:
  // With every symbol at a typical size, or as small as it may be.
  enum class At { kTypical, kLeast };
  // So many neighbours along a parallel dim, done together, load once what they share.
  struct Together {
    sym::Expr dim;
    int count;
  };

  LoopCost(const loop::Program& program, loop::Nest nest, const CpuTarget& target);
  LoopCost(const LoopCost&) = delete;
  LoopCost& operator=(const LoopCost&) = delete;

  const loop::Nest& nest() const { return nest_; }
  const sym::Facts& facts() const { return facts_; }
  int lanes() const { return lanes_; }  // of the widest values that the nest loads or stores
  double trips(sym::Expr extent, At at = At::kTypical) const;  // one at least
  double points(At at = At::kTypical) const;
  double steps() const;  // of all loops, loop::cost_of()

  // loop::stride_of(); `access` is one of the nest's.
  const std::optional<sym::Expr>& stride(const loop::Access& access, sym::Expr var) const;
  // Whether points that are done together load the same.
  static bool is_shared(const loop::Stmt& stmt, const loop::Access& access, const Together& together);

  // Of the nest's body, or a block within, for one step of the loops around it with lanes along `var`.
  double of(const loop::Block& block, sym::Expr var, At at, const Together* together = nullptr) const;
  // The cheapest way to run it without lanes around it; `chosen`: the dims within that take lanes.
  double best(const loop::Block& block, At at, std::vector<sym::Expr>& chosen) const;

 private:
  struct Difference;
  void add_differences(const loop::Block& block, sym::Expr var, Difference& known) const;
  double access_cost(const loop::Access& access, sym::Expr var, const Difference& known) const;
  double cost(const loop::Block& block, const sym::Expr* var, At at, const Together* together,
              const Difference& known) const;
  double cost(const loop::Stmt& stmt, const sym::Expr* var, At at, const Together* together,
              const Difference& known) const;
  double best(const loop::Stmt& stmt, At at, std::vector<sym::Expr>& chosen) const;

  const loop::Program& program_;
  const loop::Nest nest_;
  const CpuTarget& target_;
  sym::Facts facts_;
  int lanes_ = 1;
  // What is known already: all schedules of a space ask for the same.
  template <class T>
  using PerVar = std::map<sym::Expr, T, sym::ExprLess>;
  mutable std::map<const loop::Access*, PerVar<std::optional<sym::Expr>>> strides_;
  mutable std::map<std::pair<const loop::Block*, At>, PerVar<double>> costs_;
  mutable std::optional<double> steps_;
};

}  // namespace stridec::schedule

// Analytical cost model of a nest run as loops, vectorised along one dim or another, for loop_nest.h. Results
// are cycles of one core, roughly: only their order matters.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::schedule {

constexpr double kLoopOverhead = 3;  // of one iteration

// Cycles of a load whose lanes are a small constant stride apart, by vector loads and shuffles
// (codegen/strided_access.h). Nothing if each lane counts as loaded by itself. `masked`: the mask differs
// between lanes.
std::optional<double> strided_load_cycles(int64_t stride, int bytes, bool masked, const CpuTarget& target);

class LoopCost {
 public:
  // Each symbol takes a typical size, or the smallest one it may have.
  enum class At { kTypical, kLeast };
  // `count` neighbours along a parallel dim that are computed together (unroll and jam) and load shared
  // elements once.
  struct Together {
    sym::Expr dim;
    int count;
  };

  LoopCost(const loop::Program& program, loop::Nest nest, const CpuTarget& target);
  LoopCost(const LoopCost&) = delete;
  LoopCost& operator=(const LoopCost&) = delete;

  const loop::Nest& nest() const { return nest_; }
  const sym::Facts& facts() const { return facts_; }
  // Vector lanes along `var`, by the widest type of which lanes load or store elements of their own.
  int lanes(sym::Expr var) const;
  double trips(sym::Expr extent, At at = At::kTypical) const;  // at least one
  double points(At at = At::kTypical) const;
  double steps() const;  // iterations of all loops, by loop::cost_of()

  // Cached loop::stride_of(); `access` is one of the nest's.
  const std::optional<sym::Expr>& stride(const loop::Access& access, sym::Expr var) const;
  // Whether points computed together load the same element.
  static bool is_shared(const loop::Stmt& stmt, const loop::Access& access, const Together& together);

  // Cost of one iteration of the loops around `block` (the nest's body or a block inside), vectorised along
  // `var`.
  double of(const loop::Block& block, sym::Expr var, At at, const Together* together = nullptr) const;
  // Cost of all iterations of the dim, the block's innermost loop, if it is vectorised. Without AVX-512 what
  // is left over after whole vectors runs one by one; `halves`: after a vector of half the lanes.
  double along(const loop::Block& block, const loop::Dim& dim, At at, bool halves,
               const Together* together = nullptr) const;
  // The lowest cost of the block if no loop around it is vectorised. `chosen`: the inner dims that are
  // vectorised then.
  double best(const loop::Block& block, At at, std::vector<sym::Expr>& chosen) const;

 private:
  struct Difference;
  bool differs(const loop::Access& access, sym::Expr var, const Difference& known) const;
  void add_differences(const loop::Block& block, sym::Expr var, Difference& known) const;
  // `loads`: the access is a load.
  double access_cost(const loop::Access& access, bool loads, sym::Expr var, const Difference& known) const;
  double cost(const loop::Block& block, const sym::Expr* var, At at, const Together* together,
              const Difference& known) const;
  double cost(const loop::Stmt& stmt, const sym::Expr* var, At at, const Together* together,
              const Difference& known) const;
  double best(const loop::Stmt& stmt, At at, std::vector<sym::Expr>& chosen) const;

  const loop::Program& program_;
  const loop::Nest nest_;
  const CpuTarget& target_;
  sym::Facts facts_;
  // Memoised results: all schedules of a space ask for the same values.
  template <class T>
  using PerVar = std::map<sym::Expr, T, sym::ExprLess>;
  mutable std::map<const loop::Access*, PerVar<std::optional<sym::Expr>>> strides_;
  mutable std::map<std::pair<const loop::Block*, At>, PerVar<double>> costs_;
  mutable PerVar<int> lanes_;
  mutable std::optional<double> steps_;
};

}  // namespace stridec::schedule

#include "compiler/kernels/gemm_lines.h"

#include <map>
#include <numeric>

#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"

namespace stridec::kernels {
namespace {

using sym::Expr;

constexpr int64_t kMostTaps = 64;

struct Steps {
  int64_t row, tap;
};

// Strides of e along two dims; nothing if e is not linear in them with constant strides.
std::optional<Steps> steps_of(Expr e, Expr row, Expr tap) {
  const auto form = linear_form(e, {row, tap});
  if (!form) return std::nullopt;
  const auto by_row = sym::as_const(form->coefficients[0]), by_tap = sym::as_const(form->coefficients[1]);
  return by_row && by_tap ? std::optional(Steps{*by_row, *by_tap}) : std::nullopt;
}

// Strides of the only index that depends on the tap or the row.
std::optional<Steps> steps_of_index(const loop::Access& access, Expr row, Expr tap) {
  std::optional<Steps> found;
  for (Expr index : access.index) {
    if (!sym::depends_on(index, tap) && !sym::depends_on(index, row)) continue;
    const auto steps = found ? std::nullopt : steps_of(index, row, tap);
    if (!steps || steps->row < 1 || steps->tap < 1) return std::nullopt;
    found = steps;
  }
  return found;
}

bool bounds_move_alike(const loop::Access& access, Expr row, Expr tap, const Steps& steps,
                       const sym::Facts& facts) {
  for (Expr condition : loop::conjuncts(sym::simplify(access.mask, facts))) {
    if (!sym::depends_on(condition, tap) && !sym::depends_on(condition, row)) continue;
    if (condition.op() != sym::Op::kLt && condition.op() != sym::Op::kLe) return false;
    const auto own = steps_of(condition.arg(1) - condition.arg(0), row, tap);
    if (!own || own->row * steps.tap != own->tap * steps.row) return false;
  }
  return true;
}

}  // namespace

std::optional<Lines> match_lines(const loop::Access& access, const std::vector<loop::Dim>& rows,
                                 const loop::Dim& tap, const sym::Facts& facts) {
  const auto taps = sym::as_const(tap.extent);
  if (!taps || *taps < 2 || *taps > kMostTaps) return std::nullopt;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto steps = steps_of_index(access, rows[row].var, tap.var);
    if (!steps || !bounds_move_alike(access, rows[row].var, tap.var, *steps, facts)) continue;
    const int64_t divisor = std::gcd(steps->row, steps->tap), step = steps->row / divisor,
                  dilation = steps->tap / divisor;
    Lines lines{.row = row, .copies = {}, .taps = {}};
    std::map<int64_t, size_t> copy_of;  // by the remainder of the position modulo the step
    for (int64_t t = 0; t < *taps; ++t) {
      const auto [found, fresh] = copy_of.emplace(dilation * t % step, lines.copies.size());
      if (fresh) lines.copies.push_back({.tap = t, .lines = 0});
      Lines::Copy& copy = lines.copies[found->second];
      copy.lines = dilation * (t - copy.tap) / step;
      lines.taps.push_back({found->second, copy.lines});
    }
    if (lines.copies.size() < lines.taps.size()) return lines;
  }
  return std::nullopt;
}

}  // namespace stridec::kernels

#include "compiler/sym/facts.h"

#include <algorithm>
#include <atomic>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/sym/facts_state.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/interval.h"
#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

// The version after a change to another version. Walks derive the same facts repeatedly (a loop's, for every
// access in it). Equal changes give equal versions while the table holds them, so that cached answers are
// reused.
class Versions {
 public:
  uint64_t after(uint64_t version, const Facts::Change& change) {
    static std::atomic<uint64_t> last{0};
    const uint64_t hash = (version * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(change.kind)) ^
                          (change.a.hash() + 3 * change.b.hash() + 7 * change.c.hash());
    Entry& at = entries_[(hash * 0x9e3779b97f4a7c15ull) >> (64 - kBits)];
    if (at.to == 0 || at.from != version || !(at.change == change)) at = {version, change, ++last};
    return at.to;
  }

 private:
  static constexpr int kBits = 14;
  struct Entry {
    uint64_t from = 0;
    Facts::Change change;
    uint64_t to = 0;
  };
  std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << kBits);
};

const std::shared_ptr<Facts::State>& nothing_known() {
  static const auto* state = new std::shared_ptr<Facts::State>(std::make_shared<Facts::State>());
  return *state;
}

int64_t common_multiple(int64_t a, int64_t b) {
  int64_t g = static_cast<int64_t>(gcd(magnitude(a), magnitude(b)));
  return checked_mul(a / g, b).value_or(std::max(a, b));
}

// The tightest interval of multiples of n within i.
Interval to_multiples(Interval i, int64_t n) {
  if (n <= 1) return i;
  if (i.has_lo() && i.lo > Interval::kNone + n)
    i.lo = floor_div(i.lo + (i.lo < Interval::kUnlimited - n ? n - 1 : 0), n) * n;
  if (i.has_hi()) i.hi = floor_div(i.hi, n) * n;
  return i;
}

Facts::State::Variable& variable_of(Facts::State& s, Expr name) {
  auto at =
      std::find_if(s.variables.begin(), s.variables.end(), [&](const auto& v) { return v.name == name; });
  if (at != s.variables.end()) return *at;
  return s.variables.emplace_back(Facts::State::Variable{.name = name, .range = {}, .extent = {}});
}

Facts::State::Bound& bound_of(Facts::State& s, Expr of) {
  auto at = std::find_if(s.bounds.begin(), s.bounds.end(), [&](const auto& b) { return b.of == of; });
  if (at != s.bounds.end()) return *at;
  return s.bounds.emplace_back(Facts::State::Bound{.of = of, .range = {}});
}

void narrow(Facts::State& s, Expr of, Interval range) {
  Interval now;
  if (of.is_var()) {
    auto& v = variable_of(s, of);
    v.range = to_multiples(intersect(v.range, range), v.divisor);
    now = v.range;
  } else {
    auto& b = bound_of(s, of);
    b.range = to_multiples(intersect(b.range, range), b.divisor);
    now = b.range;
  }
  s.contradictory |= now.empty();
}

// Narrows `of` by scale * of + shift <= 0.
void narrow_at_most_zero(Facts::State& s, const Normalised& n) {
  Checked limit = checked_sub(0, n.shift);
  if (!limit) return;
  if (n.scale > 0) {
    narrow(s, n.of, {Interval::kNone, floor_div(*limit, n.scale)});
  } else {
    Checked lo = checked_floordiv(n.shift, -n.scale);  // of >= shift / -scale, rounded up
    if (lo) narrow(s, n.of, {*lo + (floor_mod(n.shift, -n.scale) != 0), Interval::kUnlimited});
  }
}

}  // namespace

const Facts::State::Variable* Facts::State::find(Expr variable) const {
  for (const Variable& v : variables) {
    if (v.name == variable) return &v;
  }
  return nullptr;
}

const Facts::State::Bound* Facts::State::find_bound(Expr e) const {
  for (const Bound& b : bounds) {
    if (b.of == e) return &b;
  }
  return nullptr;
}

Normalised normalised(Polynomial p) {
  int64_t shift = std::exchange(p.constant, 0);
  uint64_t g = content(p);
  int64_t scale = g == 0 || g > INT64_MAX ? 1 : static_cast<int64_t>(g);
  if (!p.terms.empty() && p.terms[0].coefficient < 0) scale = -scale;
  for (Term& t : p.terms) {
    if (t.coefficient == INT64_MIN && scale == -1) return {Expr(), 0, 0};
    t.coefficient /= scale;
  }
  return {to_expr(p), scale, shift};
}

Facts::Facts() : state_(nothing_known()) {}
Facts::Facts(const Facts&) = default;
Facts::Facts(Facts&&) noexcept = default;
Facts& Facts::operator=(const Facts&) = default;
Facts& Facts::operator=(Facts&&) noexcept = default;
Facts::~Facts() = default;

Facts::State& Facts::writable(const Change& change) {
  thread_local Versions versions;
  if (state_.use_count() != 1) state_ = std::make_shared<State>(*state_);
  state_->version = versions.after(state_->version, change);
  return *state_;
}

void Facts::set_range(Expr variable, std::optional<int64_t> lo, std::optional<int64_t> hi) {
  STRIDEC_CHECK(variable.is_var(), to_string(variable));
  const Interval range{lo.value_or(Interval::kNone), hi.value_or(Interval::kUnlimited)};
  narrow(writable({Change::kRange, variable, range.lo, range.hi}), variable, range);
}

void Facts::set_divisible(Expr e, int64_t n) {
  STRIDEC_CHECK(n >= 1, to_string(e));
  if (n == 1 || e.is_const()) return;
  State& s = writable({Change::kDivisible, e, n});
  if (e.is_var()) {
    auto& v = variable_of(s, e);
    v.divisor = common_multiple(v.divisor, n);
  } else {
    auto& b = bound_of(s, e);
    b.divisor = common_multiple(b.divisor, n);
  }
  narrow(s, e, {});
}

void Facts::set_equal(Expr a, Expr b) {
  State& s = writable({Change::kEqual, a, b});
  a = substitute(a, s.equal), b = substitute(b, s.equal);
  auto d = add_scaled(polynomial(a), polynomial(b), -1);
  if (!d) return;
  if (d->is_constant()) {
    s.contradictory |= d->constant != 0;
    return;
  }
  // Prefer to eliminate the variable that comes last. In an equation of a loop variable and symbols that is
  // the loop variable; elsewhere the order of names keeps the choice stable.
  Expr difference = to_expr(*d);
  const Term* solved = nullptr;
  for (const Term& t : d->terms) {
    if (!t.base.is_var() || (t.coefficient != 1 && t.coefficient != -1)) continue;
    auto linear = linear_in(difference, t.base);
    if (!linear || !linear->coefficient.is_const()) continue;
    if (!solved || (is_index(t.base) && !is_index(solved->base)) ||
        is_index(t.base) == is_index(solved->base))
      solved = &t;
  }
  Normalised n = normalised(*d);
  if (n.scale != 0 && n.shift % n.scale == 0) {
    int64_t value = -(n.shift / n.scale);
    narrow(s, n.of, {value, value});
  }
  if (!solved) return;
  Expr replacement = solved->coefficient == 1 ? solved->base - difference : solved->base + difference;
  Substitution one{{solved->base, replacement}};
  for (auto& [variable, value] : s.equal) value = substitute(value, one);
  s.equal.emplace(solved->base, replacement);
}

void Facts::assume(Expr condition) {
  if (condition.is_const()) {
    if (condition.value() == 0) writable({Change::kCondition, condition}).contradictory = true;
    return;
  }
  if (condition.op() == Op::kAnd) {
    for (const Expr& arg : condition.args()) assume(arg);
    return;
  }
  State& s = writable({Change::kCondition, condition});
  if (std::find(s.conditions.begin(), s.conditions.end(), condition) == s.conditions.end())
    s.conditions.push_back(condition);
  switch (condition.op()) {
    case Op::kLe:
    case Op::kLt: {
      auto d = add_scaled(polynomial(condition.arg(0)), polynomial(condition.arg(1)), -1);
      if (d && condition.op() == Op::kLt) d = add_scaled(*d, {{}, 1}, 1);
      if (!d || d->is_constant()) return;
      Normalised n = normalised(*std::move(d));
      if (n.scale != 0) narrow_at_most_zero(s, n);
      return;
    }
    case Op::kEq: {
      Expr a = condition.arg(0), b = condition.arg(1);
      if (a.op() == Op::kMod && a.arg(1).is_const() && a.arg(1).value() > 0 && b.is_const(0)) {
        return set_divisible(a.arg(0), a.arg(1).value());
      }
      return set_equal(a, b);
    }
    case Op::kNe: {
      auto d = add_scaled(polynomial(condition.arg(0)), polynomial(condition.arg(1)), -1);
      if (!d || d->is_constant()) return;
      Normalised n = normalised(*std::move(d));
      if (n.scale == 0 || n.shift % n.scale != 0) return;
      int64_t excluded = -(n.shift / n.scale);
      Interval now = bounds(n.of);
      writable({Change::kAfterQuestion, condition});  // invalidates answers that were cached above
      if (now.lo == excluded) narrow(s, n.of, {excluded + 1, Interval::kUnlimited});
      if (now.hi == excluded) narrow(s, n.of, {Interval::kNone, excluded - 1});
      return;
    }
    default: return;
  }
}

void Facts::set_index(Expr index, Expr extent) {
  assume(le(1, extent));
  add_index(index, extent);
}

void Facts::set_masked_index(Expr index, Expr extent) {
  if (bounds(extent).hi <= 1)
    set_range(index, 0, std::nullopt);
  else
    add_index(index, extent);
}

void Facts::add_index(Expr index, Expr extent) {
  STRIDEC_CHECK(index.is_var() && !depends_on(extent, index), to_string(index) + " < " + to_string(extent));
  State& s = writable({Change::kIndex, index, extent});
  std::erase_if(s.variables, [&](const State::Variable& v) { return v.name == index; });
  s.variables.push_back(
      {.name = index, .range = {0, Interval::kUnlimited}, .has_extent = true, .extent = extent});
  Interval e = bounds(extent);
  if (e.has_hi()) narrow(writable({Change::kAfterQuestion, index}), index, {0, e.hi - 1});
}

Facts Facts::with_range(Expr variable, std::optional<int64_t> lo, std::optional<int64_t> hi) const {
  Facts f = *this;
  f.set_range(variable, lo, hi);
  return f;
}

Facts Facts::with_index(Expr index, Expr extent) const {
  Facts f = *this;
  f.set_index(index, extent);
  return f;
}

Facts Facts::with(Expr condition) const {
  Facts f = *this;
  f.assume(condition);
  return f;
}

std::vector<Expr> Facts::relations() const {
  std::vector<Expr> out;
  for (const State::Bound& b : state_->bounds) {
    if (b.range.has_lo()) out.push_back(le(b.range.lo, b.of));
    if (b.range.has_hi()) out.push_back(le(b.of, b.range.hi));
    if (b.divisor > 1) out.push_back(eq(mod(b.of, b.divisor), 0));
  }
  for (const auto& [from, to] : state_->equal) out.push_back(eq(from, to));
  out.insert(out.end(), state_->conditions.begin(), state_->conditions.end());
  std::sort(out.begin(), out.end(), ExprLess());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase_if(out, [](Expr e) { return e.is_const(); });
  return out;
}

bool Facts::contradictory() const { return state_->contradictory; }

}  // namespace stridec::sym

#include "compiler/sym/counterexample.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "compiler/sym/facts_state.h"

namespace stridec::sym {
namespace {

constexpr int kSamples = 16;

// Distances from the least value of a variable's range. They differ much, since a sum in which one variable
// is large and the others are small decides most comparisons.
constexpr int64_t kDistances[] = {0, 1, 4, 31, 200, 3000};

using Assignment = std::unordered_map<Expr, int64_t, ExprHash>;

// A number that depends on the variable's position and the sample.
size_t mixed(size_t variable, int sample) {
  uint64_t x = variable * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(sample) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebull;
  return static_cast<size_t>(x >> 33);
}

std::optional<int64_t> value_of(Expr e, const Assignment& at) {
  return evaluate(e, [&](Expr v) -> std::optional<int64_t> {
    const auto found = at.find(v);
    return found == at.end() ? std::nullopt : std::optional(found->second);
  });
}

bool lies_in(const std::optional<int64_t>& value, const Interval& range, int64_t divisor) {
  return value && (!range.has_lo() || *value >= range.lo) && (!range.has_hi() || *value <= range.hi) &&
         (divisor <= 1 || *value % divisor == 0);
}

// The multiple of the divisor at this distance from the end of the range, if the range holds it.
std::optional<int64_t> pick(const Interval& range, int64_t divisor, int64_t distance) {
  const int64_t step = std::max<int64_t>(divisor, 1);
  const int64_t lo = range.has_lo() ? range.lo : range.has_hi() ? range.hi - distance : 0;
  if (range.has_hi() && range.hi - distance < lo) distance = range.hi - lo;
  if (distance < 0) return std::nullopt;
  const int64_t value = lo + distance, down = value - ((value % step) + step) % step;
  for (const int64_t each : {down, down + step})
    if (lies_in(each, range, divisor)) return each;
  return std::nullopt;
}

// An assignment of the variables that the facts mention; nothing if this sample contradicts them.
std::optional<Assignment> sample(const Facts::State& state, int number) {
  Assignment at;
  for (size_t i = 0; i < state.variables.size(); ++i) {
    const Facts::State::Variable& v = state.variables[i];
    if (state.equal.contains(v.name)) continue;
    Interval range = v.range;
    if (v.has_extent) {
      const std::optional<int64_t> extent = value_of(v.extent, at);
      if (!extent || *extent < 1) return std::nullopt;
      range.lo = range.has_lo() ? std::max<int64_t>(range.lo, 0) : 0;
      range.hi = range.has_hi() ? std::min(range.hi, *extent - 1) : *extent - 1;
    }
    const size_t distance = number == 0 ? 0 : mixed(i, number) % std::size(kDistances);
    const std::optional<int64_t> value = pick(range, v.divisor, kDistances[distance]);
    if (!value) return std::nullopt;
    at[v.name] = *value;
  }
  for (const auto& [replaced, by] : state.equal) {
    const std::optional<int64_t> value = value_of(by, at);
    if (!value) return std::nullopt;
    at[replaced] = *value;
  }
  return at;
}

bool satisfies(const Assignment& at, const Facts::State& state) {
  if (state.contradictory) return false;
  for (const Facts::State::Variable& v : state.variables) {
    const auto found = at.find(v.name);
    if (found == at.end() || !lies_in(found->second, v.range, v.divisor)) return false;
    if (!v.has_extent) continue;
    const std::optional<int64_t> extent = value_of(v.extent, at);
    if (!extent || found->second < 0 || found->second >= *extent) return false;
  }
  for (const Facts::State::Bound& b : state.bounds)
    if (!lies_in(value_of(b.of, at), b.range, b.divisor)) return false;
  return std::all_of(state.conditions.begin(), state.conditions.end(),
                     [&](Expr condition) { return value_of(condition, at).value_or(0) != 0; });
}

struct Samples {
  uint64_t version = 0;
  bool made = false;
  std::vector<Assignment> all;
};

// Those of the last few facts that were asked about.
const std::vector<Assignment>& samples_of(const Facts::State& state) {
  thread_local std::array<Samples, 8> known;
  thread_local size_t next = 0;
  for (const Samples& each : known)
    if (each.made && each.version == state.version) return each.all;
  Samples& made = known[next++ % known.size()];
  made = {.version = state.version, .made = true, .all = {}};
  for (int number = 0; number < kSamples; ++number)
    if (std::optional<Assignment> at = sample(state, number); at && satisfies(*at, state))
      made.all.push_back(std::move(*at));
  return made.all;
}

}  // namespace

bool has_negative_sample(Expr e, const Facts& facts) {
  for (const Assignment& at : samples_of(facts.state()))
    if (value_of(e, at).value_or(0) < 0) return true;
  return false;
}

}  // namespace stridec::sym

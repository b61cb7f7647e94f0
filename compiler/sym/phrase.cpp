#include "compiler/sym/phrase.h"

#include <numeric>
#include <vector>

#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

bool is_multiple(Expr c) {
  return c.op() == Op::kEq && ((c.arg(0).op() == Op::kMod && c.arg(1).is_const(0)) ||
                               (c.arg(1).op() == Op::kMod && c.arg(0).is_const(0)));
}

// The remainder in a condition for which is_multiple() holds.
Expr remainder_of(Expr c) { return c.arg(c.arg(0).op() == Op::kMod ? 0 : 1); }

std::string joined(Expr c, const char* word) {
  std::string out;
  for (Expr part : c.args()) {
    const bool nested = part.op() == Op::kAnd || part.op() == Op::kOr;
    out += (out.empty() ? "" : word) + (nested ? "(" + phrase(part) + ")" : phrase(part));
  }
  return out;
}

// The period of the divisions and remainders in a condition: the least common multiple of their constant
// divisors. Nothing if there are none, or if it is long.
std::optional<int64_t> period_of(Expr c) {
  constexpr int64_t kLongest = 1024;
  constexpr uint32_t kLargest = 256;
  if (c.size() > kLargest) return std::nullopt;
  int64_t period = 1;
  bool known = true;
  for_each_node(c, [&](Expr e) {
    if (e.op() != Op::kFloorDiv && e.op() != Op::kMod) return;
    const int64_t divisor = e.arg(1).is_const() ? e.arg(1).value() : 0;
    known = known && divisor > 0 && divisor <= kLongest;
    if (known) period = std::lcm(period, divisor);
    known = known && period <= kLongest;
  });
  return known && period > 1 ? std::optional(period) : std::nullopt;
}

// "17..31", "3", "1..2 or 5"; "" if there are many runs.
std::string runs_of(const std::vector<int64_t>& numbers) {
  constexpr int kMost = 3;
  std::string text;
  int runs = 0;
  for (size_t i = 0; i < numbers.size(); ++runs) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : " or ") + std::to_string(numbers[i]);
    if (end > i + 1) text += ".." + std::to_string(numbers[end - 1]);
    i = end;
  }
  return runs <= kMost ? text : "";
}

// A condition on one variable that depends on its remainder alone, in terms of multiples: "h is a multiple of
// 32", "h is a multiple of 32, or 17..31 more than one". Both sides of such a condition are a linear function
// and a periodic one; where the linear ones are equal, the truth is periodic, also far from 0.
std::optional<std::string> multiples(Expr c) {
  const std::vector<Expr> vars = free_vars(c);
  const std::optional<int64_t> period = vars.size() == 1 ? period_of(c) : std::nullopt;
  if (!period) return std::nullopt;
  std::vector<int64_t> residues;
  for (int64_t r = 0; r < *period; ++r) {
    std::optional<int64_t> truth;
    for (const int64_t times : {0, 1, 2, 1000, 1'000'003}) {
      const auto value = evaluate(c, [&](Expr) { return std::optional(times * *period + r); });
      if (!value || (truth && truth != value)) return std::nullopt;
      truth = value;
    }
    if (*truth != 0) residues.push_back(r);
  }
  if (residues.empty() || residues.size() == static_cast<size_t>(*period)) return std::nullopt;
  const std::string name = to_string(vars[0]);
  const int64_t step = *period / static_cast<int64_t>(residues.size());
  bool multiple = *period % static_cast<int64_t>(residues.size()) == 0;
  for (size_t i = 0; i < residues.size(); ++i)
    multiple = multiple && residues[i] == static_cast<int64_t>(i) * step;
  if (multiple) return name + " is a multiple of " + std::to_string(step);
  const bool zero = residues[0] == 0;
  const std::string runs = runs_of({residues.begin() + (zero ? 1 : 0), residues.end()});
  if (runs.empty()) return std::nullopt;
  const std::string of = " a multiple of " + std::to_string(*period);
  return zero ? name + " is" + of + ", or " + runs + " more than one"
              : name + " is " + runs + " more than" + of;
}

}  // namespace

std::string phrase(Expr c) {
  if (c.is_condition() && !is_multiple(c))
    if (const auto text = multiples(c)) return *text;
  switch (c.op()) {
    case Op::kAnd: return joined(c, " and ");
    case Op::kOr: return joined(c, " or ");
    case Op::kEq:
      if (is_multiple(c)) {
        const Expr remainder = remainder_of(c);
        return to_string(remainder.arg(0)) + " is a multiple of " + to_string(remainder.arg(1));
      }
      return c.arg(0).is_const() ? to_string(c.arg(1)) + " == " + to_string(c.arg(0)) : to_string(c);
    case Op::kLe:
      return c.arg(0).is_const() ? to_string(c.arg(1)) + " >= " + to_string(c.arg(0)) : to_string(c);
    case Op::kLt:
      return c.arg(0).is_const() ? to_string(c.arg(1)) + " > " + to_string(c.arg(0)) : to_string(c);
    default: return to_string(c);
  }
}

std::optional<Expr> bounded_variable(Expr c) {
  if (is_multiple(c)) {
    const Expr remainder = remainder_of(c);
    if (remainder.arg(0).is_var() && remainder.arg(1).is_const()) return remainder.arg(0);
  }
  if (c.op() != Op::kLe && c.op() != Op::kLt) return std::nullopt;
  if (c.arg(0).is_var() && c.arg(1).is_const()) return c.arg(0);
  if (c.arg(1).is_var() && c.arg(0).is_const()) return c.arg(1);
  return std::nullopt;
}

}  // namespace stridec::sym

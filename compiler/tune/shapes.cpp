#include "compiler/tune/shapes.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::tune {
namespace {

void check(const loop::Program& program, const Sizes& given) {
  for (const auto& [name, value] : given) {
    const auto named = [&, &n = name](const loop::Symbol& s) { return s.var.name() == n; };
    const auto symbol = std::find_if(program.symbols.begin(), program.symbols.end(), named);
    const auto names = join(program.symbols, ", ", [](const loop::Symbol& s) { return s.var.name(); });
    if (symbol == program.symbols.end())
      fail(ErrorKind::kUsage, "unknown-symbol",
           cat("--tune-shape names '", name, "', which is not a size of the model"),
           names.empty() ? "its sizes are all fixed" : cat("its sizes are ", names));
    if (!program.facts.bounds(symbol->var).contains(value))
      fail(ErrorKind::kUsage, "shape-range",
           cat("--tune-shape gives ", name, " = ", value, ", outside of its range"));
  }
}

bool counts_requests(const loop::Symbol& symbol) { return symbol.input >= 0 && symbol.dim == 0; }

int64_t least(const sym::Interval& range) { return range.has_lo() ? std::max<int64_t>(range.lo, 1) : 1; }

// The largest multiple of the symbol's known divisor that is at most `value`; the next one if the symbol's
// range does not contain that.
int64_t divisible(int64_t value, const loop::Symbol& symbol, const sym::Facts& facts) {
  const int64_t step = std::max<int64_t>(1, facts.known_divisor(symbol.var));
  const int64_t down = value / step * step;
  return facts.bounds(symbol.var).contains(down) ? down : down + step;
}

int64_t middle(const loop::Symbol& symbol, const sym::Facts& facts) {
  constexpr int64_t kOpen = 64, kRequests = 4096, kOther = 256;
  const sym::Interval range = facts.bounds(symbol.var);
  const int64_t most =
      range.has_hi() ? std::min(range.hi, counts_requests(symbol) ? kRequests : kOther) : kOpen;
  const int64_t lo = least(range);
  return std::lround(std::sqrt(static_cast<double>(lo) * static_cast<double>(std::max(lo, most))));
}

Values as_values(Sizes sizes) {
  return [sizes = std::move(sizes)](sym::Expr symbol) -> std::optional<int64_t> {
    const auto found = sizes.find(symbol.name());
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  };
}

// Sets each loop's iteration count to its trip count at the other sizes, and its counter to the last
// iteration, unless `given` sets them: at a later iteration the body would access memory out of bounds.
void add_iterations(const loop::Program& program, const Sizes& given, Sizes& sizes) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* loop = std::get_if<loop::While>(&step.node);
    const auto trips = loop ? sym::evaluate(loop->trip_count, as_values(sizes)) : std::nullopt;
    if (!trips) return;
    for (const auto& [symbol, value] : {std::pair(loop->iterations, *trips), {loop->counter, *trips - 1}})
      if (sizes.contains(symbol.name()) && !given.contains(symbol.name()))
        sizes[symbol.name()] = std::max<int64_t>(0, value);
  });
}

}  // namespace

void check_shapes(const loop::Program& program, const std::vector<Sizes>& given) {
  for (const Sizes& sizes : given) check(program, sizes);
}

std::vector<Values> shapes_of(const loop::Program& program, const std::vector<Sizes>& given) {
  Sizes one, several;
  for (const loop::Symbol& symbol : program.symbols) {
    const int64_t few = counts_requests(symbol)
                            ? least(program.facts.bounds(symbol.var))
                            : static_cast<int64_t>(schedule::typical(symbol.var, program.facts));
    one[symbol.var.name()] = divisible(few, symbol, program.facts);
    several[symbol.var.name()] = divisible(middle(symbol, program.facts), symbol, program.facts);
  }
  std::vector<Values> shapes;
  check_shapes(program, given);
  const auto add = [&](const Sizes& said, const Sizes& others) {
    Sizes sizes = said;
    sizes.insert(others.begin(), others.end());
    add_iterations(program, said, sizes);
    shapes.push_back(as_values(std::move(sizes)));
  };
  for (const Sizes& sizes : given) add(sizes, one);
  if (given.empty()) add({}, one), add({}, several);
  return shapes;
}

std::string bucket_of(const std::vector<sym::Expr>& symbols, const Values& values) {
  if (symbols.empty()) return "-";
  return join(symbols, "x", [&](sym::Expr symbol) {
    int64_t bucket = 1;
    for (const int64_t value = values(symbol).value_or(1); bucket < value;) bucket *= 2;
    return std::to_string(bucket);
  });
}

}  // namespace stridec::tune

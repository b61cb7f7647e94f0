#include "cli/random_inputs.h"

#include <algorithm>
#include <optional>

#include "cli/random_values.h"
#include "compiler/base/diagnostic.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using sym::Expr;

std::function<std::optional<int64_t>(Expr)> lookup_in(const Sizes& sizes) {
  return [&sizes](Expr var) -> std::optional<int64_t> {
    const auto found = sizes.find(var.name());
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  };
}

// ---- sizes ----

const sym::Guard* broken_guard(const loop::Program& program, const Sizes& sizes) {
  for (const auto& guard : program.guards)
    if (sym::evaluate(guard.condition, lookup_in(sizes)) == 0) return &guard;
  return nullptr;
}

double work(const loop::Program& program, const Sizes& sizes) {
  double flops = 0;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node)) {
      const auto lookup = [&](Expr var) -> std::optional<int64_t> {
        const auto found = sizes.find(var.name());
        return found == sizes.end() ? 4 : found->second;
      };
      flops += static_cast<double>(
          sym::evaluate(loop::cost_of(program, program[launch->nest]).flops, lookup).value_or(0));
    }
  });
  return flops;
}

}  // namespace

Sizes choose_sizes(const loop::Program& program, const std::vector<frontend::DimRange>& dims, int run) {
  constexpr int64_t kSmall[] = {2, 3, 5, 4};
  constexpr double kMuchWork = 1.5e9;  // takes the interpreter some seconds
  struct Choice {
    std::string name;
    int64_t least, most, multiple;
    int64_t at_least(int64_t wanted) const {
      const int64_t value = (std::max(wanted, least) + multiple - 1) / multiple * multiple;
      return value > most ? most / multiple * multiple : value;
    }
  };
  std::vector<Choice> choices;
  for (const auto& symbol : program.symbols) {
    if (!loop::is_bound_before_run(program, symbol)) continue;
    const sym::Interval range = program.facts.bounds(symbol.var);
    Choice choice{symbol.var.name(), std::max<int64_t>(range.lo, 1), range.hi,
                  std::max<int64_t>(1, program.facts.known_divisor(symbol.var))};
    for (const auto& dim : dims)
      if (dim.name == choice.name) {
        choice.least = dim.lower == 0 && dim.upper == 0 ? 0 : std::max(choice.least, dim.lower.value_or(1));
        choice.most = std::min(choice.most, dim.upper.value_or(choice.most));
        choice.multiple = std::max(choice.multiple, dim.multiple);
        if (dim.lower && dim.lower == dim.upper) choice = {choice.name, *dim.lower, *dim.lower, 1};
      }
    choices.push_back(std::move(choice));
  }
  const auto sizes_by = [&](const std::function<int64_t(size_t)>& wanted) {
    Sizes sizes;
    for (size_t i = 0; i < choices.size(); ++i) sizes[choices[i].name] = choices[i].at_least(wanted(i));
    return sizes;
  };
  std::vector<Sizes> candidates = {
      sizes_by([&](size_t i) { return kSmall[(i + static_cast<size_t>(run)) % std::size(kSmall)]; }),
      sizes_by([&](size_t) { return run + 2; }), sizes_by([](size_t) { return 1; }),
      sizes_by([](size_t) { return 16; })};
  if (work(program, candidates[0]) > kMuchWork)
    std::rotate(candidates.begin(), candidates.begin() + 2, candidates.end());
  for (const Sizes& sizes : candidates)
    if (!broken_guard(program, sizes)) return sizes;
  fail(ErrorKind::kDoesNotFit, "sizes-needed",
       sym::render(*broken_guard(program, candidates[0]), lookup_in(candidates[0])),
       "give sizes that fit: --dim name=size,...");
}

Sizes context_sizes_of(const loop::Program& program, const std::vector<loop::HostTensor>& inputs,
                       const Sizes& chosen) {
  Sizes sizes;
  for (const loop::Symbol& symbol : program.symbols) {
    if (!loop::is_context_size(program, symbol.var)) continue;
    const auto input = static_cast<size_t>(symbol.input), dim = static_cast<size_t>(symbol.dim);
    const bool given = symbol.input >= 0 && inputs.at(input).shape.size() > dim;
    sizes[symbol.var.name()] =
        given ? inputs[input].shape[dim] / symbol.multiple : chosen.at(symbol.var.name());
  }
  return sizes;
}

loop::HostTensor random_input(const loop::Program& program, size_t input, const loop::ValueRange& range,
                              const Sizes& sizes, uint64_t seed, int attempt) {
  const loop::Buffer& buffer = program[program.inputs[input]];
  std::vector<int64_t> shape;
  for (Expr dim : buffer.shape) shape.push_back(sym::evaluate(dim, lookup_in(sizes)).value_or(1));
  loop::HostTensor tensor = loop::make_tensor(buffer.dtype, shape);
  DrawnRange drawn = range_at(range.least, range.most, range.image, lookup_in(sizes));
  drawn.attempt = attempt;
  fill_random(buffer.dtype, drawn, seed, loop::element_count(tensor), tensor.bytes.data());
  return tensor;
}

}  // namespace stridec::cli

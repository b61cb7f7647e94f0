#include "tests/conformance/other_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/guard.h"

namespace stridec::conformance {

using loop::HostTensor;
using sym::Expr;

namespace {

using Sizes = std::vector<std::pair<Expr, int64_t>>;

std::optional<int64_t> size_of(const Sizes& sizes, Expr symbol) {
  for (const auto& [var, size] : sizes)
    if (var == symbol) return size;
  return std::nullopt;
}

bool admits(const loop::Program& program, const Sizes& sizes) {
  const auto lookup = [&](Expr var) { return size_of(sizes, var); };
  return std::none_of(program.guards.begin(), program.guards.end(),
                      [&](const sym::Guard& guard) { return sym::evaluate(guard.condition, lookup) == 0; }) &&
         std::all_of(sizes.begin(), sizes.end(),
                     [&](const auto& s) { return program.facts.bounds(s.first).contains(s.second); });
}

// Sets of symbols that may have to change together: all, those of equal size, single ones, pairs.
std::vector<std::vector<size_t>> changes(const Sizes& sizes) {
  constexpr size_t kFew = 16;
  std::vector<std::vector<size_t>> out(1);
  std::map<int64_t, std::vector<size_t>> equal;
  for (size_t i = 0; i < sizes.size(); ++i) {
    out[0].push_back(i);
    equal[sizes[i].second].push_back(i);
  }
  for (auto& [size, group] : equal) out.push_back(group);
  for (size_t i = 0; i < sizes.size(); ++i) out.push_back({i});
  for (size_t i = 0; i < std::min(kFew, sizes.size()); ++i)
    for (size_t j = i + 1; j < std::min(kFew, sizes.size()); ++j) out.push_back({i, j});
  return out;
}

// The tensor, repeated along its dims to fill the shape.
HostTensor repeated(const HostTensor& from, const std::vector<int64_t>& shape) {
  HostTensor out = loop::make_tensor(from.dtype, shape);
  if (loop::element_count(from) == 0) return out;
  const size_t item = out.bytes.size() / static_cast<size_t>(std::max<int64_t>(1, loop::element_count(out)));
  for (int64_t i = 0; i < loop::element_count(out); ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      at += rest % shape[d] % from.shape[d] * stride;
      stride *= from.shape[d];
      rest /= shape[d];
    }
    std::memcpy(out.bytes.data() + static_cast<size_t>(i) * item,
                from.bytes.data() + static_cast<size_t>(at) * item, item);
  }
  return out;
}

OtherSizes with_data(const loop::Program& program, Sizes sizes, const std::vector<HostTensor>& inputs) {
  OtherSizes out{.sizes = std::move(sizes), .inputs = {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> shape;
    for (Expr dim : program[program.inputs[i]].shape)
      shape.push_back(sym::evaluate(dim, [&](Expr var) { return size_of(out.sizes, var); }).value_or(0));
    out.inputs.push_back(repeated(inputs[i], shape));
  }
  return out;
}

}  // namespace

std::string to_string(const OtherSizes& sizes) {
  return join(sizes.sizes, ", ", [](const auto& s) { return cat(s.first.name(), " ", s.second); });
}

std::vector<OtherSizes> other_sizes(const loop::Program& program, const std::vector<HostTensor>& inputs) {
  constexpr size_t kMost = 8;
  Sizes given;
  for (const loop::Symbol& symbol : program.symbols)
    if (symbol.input >= 0)
      given.emplace_back(
          symbol.var,
          inputs[static_cast<size_t>(symbol.input)].shape[static_cast<size_t>(symbol.dim)] / symbol.multiple);
  std::vector<Sizes> found, all;
  Sizes together = given;
  for (const auto& grow : {+[](int64_t n) { return n + 1; }, +[](int64_t n) { return 2 * n; }}) {
    for (const auto& change : changes(given)) {
      Sizes alone = given, more = together;
      for (size_t i : change) alone[i].second = grow(given[i].second);
      for (size_t i : change) more[i].second = grow(given[i].second);
      if (alone != given && admits(program, alone)) found.push_back(alone);
      if (admits(program, more)) together = std::move(more);
    }
    if (together != given && (all.empty() || all.front() != together)) all.insert(all.begin(), together);
  }
  found.insert(found.begin(), all.begin(), all.end());
  std::vector<OtherSizes> out;
  for (size_t i = 0; i < std::min(kMost, found.size()); ++i)
    out.push_back(with_data(program, std::move(found[i]), inputs));
  return out;
}

double work(const loop::Program& program, const Sizes& sizes) {
  double flops = 0;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (const auto* launch = std::get_if<loop::Launch>(&step.node))
      flops += static_cast<double>(
          sym::evaluate(loop::cost_of(program, program[launch->nest]).flops,
                        [&](Expr var) -> std::optional<int64_t> { return size_of(sizes, var).value_or(4); })
              .value_or(0));
  });
  return flops;
}

Tolerance tolerance_of(const HostTensor& want) {
  // One unit in the last place, for formats coarser than the tolerance.
  double step = 0;
  if (is_float(want.dtype) && info(want.dtype).bits < 32)
    step = want.dtype == DType::kF16 ? 1e-3 : want.dtype == DType::kBF16 ? 8e-3 : 0.5;
  return {.relative = std::max(1e-3, step), .absolute = 0, .of_largest = is_float(want.dtype) ? 1e-6 : 0};
}

}  // namespace stridec::conformance

#include "compiler/schedule/layout/pad_inputs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/build.h"
#include "compiler/loop/index_range.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/view.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::Nest;
using loop::Program;
using sym::Expr;

// With at least this many channels, taps in the padding are better read as rows of zeros.
constexpr int64_t kFewChannels = 16;
// To more channels, GEMMs are faster than loops. With fewer multiply-adds per element of the input, a copy
// takes too much of the time, the more so where it does not stay in a core's caches.
constexpr int64_t kFewResults = 16;
constexpr double kLeastProducts = 16, kLeastFarProducts = 100;
// The inputs of results this far apart along a row are loaded by several vectors and shuffles. A copy by
// phases has them side by side, and pays sooner.
constexpr int64_t kMostPhases = 4;
constexpr double kLeastFarPhaseProducts = 40;
constexpr double kNearBytes = 1 << 20;
constexpr int64_t kLine = 64;

// A component of an index: `place`, a function of the variable on_line(), which stands for `line`, a linear
// sum of the nest's dims. `by_line` rewrites an expression that depends on the line's dims only through their
// sum as a function of on_line().
struct Component {
  Expr line, place;
  sym::Substitution by_line;
};
Expr on_line() { return sym::var("%line"); }

// Splits the last coordinate of a copy into its residue by `count` and its quotient, in whole vectors.
void split_last(loop::View& view, int64_t count) {
  const Expr phase = sym::var("%phase"), at = view.coords.back();
  const sym::Substitution joined{{at, at * count + phase}};
  for (Expr& e : view.index) e = sym::substitute(e, joined);
  view.mask = sym::substitute(view.mask, joined);
  constexpr int64_t kLanes = 8;
  view.shape.back() = sym::align_up(sym::ceildiv(view.shape.back(), count), kLanes);
  view.shape.insert(view.shape.end() - 1, count);
  view.coords.insert(view.coords.end() - 1, phase);
}

// Collects the largest linear subexpressions.
void add_lines(Expr e, const std::vector<Expr>& vars, std::set<Expr, sym::ExprLess>& lines) {
  if (!sym::has_index(e)) return;
  if (kernels::linear_form(e, vars)) {
    lines.insert(e);
    return;
  }
  for (Expr arg : e.args()) add_lines(arg, vars, lines);
}

bool share_an_index(Expr a, Expr b) {
  const std::vector<Expr> vars = sym::free_vars(a);
  return std::any_of(vars.begin(), vars.end(),
                     [&](Expr var) { return sym::is_index(var) && sym::depends_on(b, var); });
}

// Returns nothing if the component is not a function of a single sum of a dim and a tap.
std::optional<Component> component_of(Expr e, const std::vector<loop::Dim>& dims, const sym::Facts& facts) {
  const std::vector<Expr> vars = loop::vars_of(dims);
  if (kernels::linear_form(e, vars)) return Component{e, on_line(), {}};
  std::set<Expr, sym::ExprLess> lines;
  add_lines(e, vars, lines);
  if (lines.size() != 1) return std::nullopt;
  const Expr line = *lines.begin();
  const auto form = kernels::linear_form(line, vars);
  const auto moves = [](Expr coefficient) { return !coefficient.is_const(0); };
  if (std::count_if(form->coefficients.begin(), form->coefficients.end(), moves) < 2) return std::nullopt;
  for (size_t i = 0; i < vars.size(); ++i) {
    if (!form->coefficients[i].is_const(1)) continue;
    const sym::Substitution by_line{{vars[i], on_line() - (line - vars[i])}};
    const Expr place = sym::simplify(sym::substitute(e, by_line), facts);
    if (!loop::depends_on_any(place, dims)) return Component{line, place, by_line};
  }
  return std::nullopt;
}

class Padder {
 public:
  Padder(Program& program, const Nest& nest, const loop::Load& load, const std::vector<loop::Dim>& k,
         const std::vector<loop::Dim>& dims, const sym::Facts& facts, Few few)
      : program_(program), nest_(nest), load_(load), k_(k), dims_(dims), facts_(facts), few_(few) {}

  std::optional<std::vector<Nest>> parts() {
    const loop::Access& access = load_.access;
    const loop::Buffer from = program_[access.buffer];
    if (from.storage == loop::Storage::kParameter || from.storage == loop::Storage::kLocal ||
        load_.fill.f != 0 || load_.fill.i != 0 || std::signbit(load_.fill.f))
      return std::nullopt;

    // The copy covers what the result's dims and the taps reach, as a view of the buffer.
    loop::View view = loop::whole(program_, access.buffer);
    view.fill = load_.fill;
    std::vector<Expr> index;
    std::set<Expr, sym::ExprLess> along;  // dims in components that are copied
    double spacing = 1;                   // elements of the copy per position of the results
    const std::optional<Row> row = few_ == Few::kResults ? row_of(access) : std::nullopt;
    Expr inside = 1;
    for (size_t d = 0; d < access.index.size(); ++d) {
      const Expr e = access.index[d], at = view.coords[d];
      index.push_back(e);
      const bool masked = share_an_index(e, access.mask);
      if (!masked && (!loop::depends_on_any(e, k_) || kernels::linear_form(e, loop::vars_of(dims_))))
        continue;
      const auto component = component_of(e, dims_, facts_);
      const auto range = component ? loop::range_of(component->line, dims_) : std::nullopt;
      if (!range && !masked) continue;
      if (!range) return std::nullopt;
      for (Expr var : sym::free_vars(component->line))
        if (sym::is_index(var) && !along.insert(var).second) return std::nullopt;
      view.shape[d] = sym::simplify(range->most - range->least + 1, program_.facts);
      view.index[d] = sym::substitute(component->place, {{on_line(), at + range->least}});
      index[d] = sym::simplify(component->line - range->least, facts_);
      for (const loop::Dim& dim : nest_.dims)
        if (const auto linear = sym::linear_in(index[d], dim.var))
          spacing *= std::max(1.0, std::abs(typical(linear->coefficient, facts_)));
      if (!masked) continue;
      if (e == component->line) {
        const auto within = [&](Expr place) {
          return sym::logical_and(sym::le(0, place), sym::lt(place, from.shape[d]));
        };
        view.mask = sym::logical_and(view.mask, within(view.index[d]));
        inside = sym::logical_and(inside, within(e));
        continue;
      }
      for (Expr condition : loop::conjuncts(access.mask)) {
        if (!share_an_index(component->line, condition)) continue;
        const Expr by_line = sym::simplify(sym::substitute(condition, component->by_line), facts_);
        if (loop::depends_on_any(by_line, dims_)) return std::nullopt;
        view.mask = sym::logical_and(view.mask, sym::substitute(by_line, {{on_line(), at + range->least}}));
        inside = sym::logical_and(inside, condition);
      }
    }
    if (few_ == Few::kChannels
            ? !few_channels(along)
            : !row || !along.contains(row->var) || !few_results(along, view.shape, *row, spacing))
      return std::nullopt;
    // The mask has to let every element of the buffer through.
    if (!facts_.with(inside).holds(access.mask)) return std::nullopt;
    if (row && row->step > 1) {
      const Expr tap = sym::simplify(index.back() - row->step * row->var, facts_);
      index.back() = sym::mod(tap, row->step);
      index.push_back(row->var + sym::floordiv(tap, row->step));
      split_last(view, row->step);
    }

    std::vector<Expr> strides;
    if (few_ == Few::kResults && !view.shape.empty()) {
      // Rows begin at cache lines.
      strides.assign(view.shape.size(), 1);
      Expr step = sym::align_up(view.shape.back(), kLine / byte_size(from.dtype));
      for (size_t d = view.shape.size() - 1; d-- > 0; step = step * view.shape[d]) strides[d] = step;
    }
    const loop::BufferId to = loop::add_buffer(program_, {.name = cat(from.name, ".padded"),
                                                          .dtype = from.dtype,
                                                          .shape = view.shape,
                                                          .strides = std::move(strides),
                                                          .storage = loop::Storage::kArena});
    loop::NestBuilder copy(program_, "pad");
    const std::vector<Expr> at = copy.dims(view.shape);
    copy.store(loop::whole(program_, to), at, copy.load(view, at));
    Nest made = copy.nest();
    made.nodes = nest_.nodes;
    loop::attribute(made, loop::node_of(nest_, load_.result));
    Nest reader = nest_;
    loop::redirect(reader, load_.result, {.buffer = to, .index = index, .mask = 1});
    return std::vector<Nest>{std::move(made), std::move(reader)};
  }

 private:
  // Taps are the reduced dims along which components are copied; the other reduced dims are channels.
  bool few_channels(const std::set<Expr, sym::ExprLess>& along) const {
    int64_t taps = 1, channels = 1;
    for (const loop::Dim& dim : k_) {
      const auto extent = sym::as_const(dim.extent);
      if (!extent) return false;
      (along.contains(dim.var) ? taps : channels) *= *extent;
    }
    return taps >= 2 && channels < kFewChannels;
  }

  // The dim of the results along which the load's rows are contiguous, but for a step.
  struct Row {
    Expr var;
    int64_t step;
  };
  std::optional<Row> row_of(const loop::Access& access) const {
    if (access.index.empty()) return std::nullopt;
    for (const loop::Dim& dim : nest_.dims) {
      const auto stride = loop::stride_of(program_, access, dim.var, facts_);
      const int64_t step = stride ? sym::as_const(*stride).value_or(0) : 0;
      const auto linear = sym::linear_in(access.index.back(), dim.var);
      if (step == 1 || (step > 1 && step <= kMostPhases && linear && linear->coefficient.is_const(step)))
        return Row{dim.var, step};
    }
    return std::nullopt;
  }

  // Vectors of results load padded rows.
  bool few_results(const std::set<Expr, sym::ExprLess>& along, const std::vector<Expr>& copied,
                   const Row& row, double spacing) const {
    if (load_.access.mask.is_const(1)) return false;
    double taps = 1, results = 1;
    for (const loop::Dim& dim : k_) {
      const auto extent = sym::as_const(dim.extent);
      if (!extent) return false;
      if (along.contains(dim.var)) taps *= static_cast<double>(*extent);
    }
    for (const loop::Dim& dim : nest_.dims) {
      if (along.contains(dim.var) || loop::depends_on_any(offset(), {dim})) continue;
      const auto extent = sym::as_const(dim.extent);
      if (!extent) return false;
      results *= static_cast<double>(*extent);
    }
    const double bytes =
        typical(loop::element_count(copied), facts_) * byte_size(program_[load_.access.buffer].dtype);
    const double far = row.step > 1 ? kLeastFarPhaseProducts : kLeastFarProducts;
    return results <= kFewResults && taps * results >= spacing * (bytes <= kNearBytes ? kLeastProducts : far);
  }
  Expr offset() const { return loop::offset_of(program_, load_.access); }

  Program& program_;
  const Nest& nest_;
  const loop::Load& load_;
  const std::vector<loop::Dim>&k_, &dims_;
  const sym::Facts& facts_;
  const Few few_;
};

}  // namespace

std::optional<std::vector<Nest>> padded(Program& program, const Nest& nest, Few few) {
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction) return std::nullopt;
  const std::vector<loop::Dim>& k = contraction->reduce->dims;
  // In grouped convolutions, neighbours in memory belong to different groups.
  for (const loop::Dim& dim : nest.dims)
    if (contraction->factors[0].vars.contains(dim.var) && contraction->factors[1].vars.contains(dim.var))
      return std::nullopt;
  std::vector<loop::Dim> dims = nest.dims;
  dims.insert(dims.end(), k.begin(), k.end());
  const sym::Facts facts = kernels::facts_in(program, nest, *contraction);
  for (const kernels::Factor& factor : contraction->factors)
    if (factor.load)
      if (auto parts = Padder(program, nest, *factor.load, k, dims, facts, few).parts()) return parts;
  return std::nullopt;
}

void pad_inputs(Program& program, Few few, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    auto parts = padded(program, nest, few);
    if (!parts) return std::vector<Nest>();
    if (decisions) decisions->push_back(decision_about(nest, "padding", true, "it reads a padded copy"));
    return *std::move(parts);
  });
}

}  // namespace stridec::schedule

// if and loop: host control flow around nests. A size that differs between branches is select(condition, a,
// b). Each carried value has one buffer, which is written back at the end of every iteration. A carried size
// may change by a fixed amount per iteration: it is then start + counter * growth, and the buffer has the
// largest size.
#include <algorithm>
#include <limits>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/graph/long_sizes.h"
#include "compiler/graph/undo.h"
#include "compiler/ops/control_gradient.h"
#include "compiler/ops/fixed_input.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/region.h"
#include "compiler/ops/shapes.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::ops {

namespace {

// ---- if --------------------------------------------------------------------------------------------------

[[noreturn]] void refuse_ranks(const Builder& b, sym::Expr condition, const std::string& both) {
  const std::string options = fixing_options(b, condition);
  fail(ErrorKind::kUnsupported, "unsupported-rank", cat(both, "; one number of dims has to do for both"),
       options.empty() ? "where sizes decide which branch runs, fix them: --dim name=size"
                       : cat("an input decides which branch runs: fix its value, as in ", options));
}

Inferred if_shape(Builder& b, const Node& node) {
  STRIDEC_CHECK(node.inputs.empty() && node.regions.size() == 2);
  const sym::Expr condition = node.attributes.expr("condition");
  const auto &then_results = node.regions[0].results, &else_results = node.regions[1].results;
  if (then_results.size() != else_results.size())
    does_not_fit(
        cat("if: the branches have ", then_results.size(), " and ", else_results.size(), " results"));
  Inferred out;
  for (size_t i = 0; i < then_results.size(); ++i) {
    const Type &a = b.type(then_results[i]), &c = b.type(else_results[i]);
    const std::string both = cat("if: result ", i, " is ", graph::to_string(a), " in one branch and ",
                                 graph::to_string(c), " in the other");
    if (a.dtype != c.dtype) does_not_fit(both);
    if (a.shape.size() != c.shape.size()) refuse_ranks(b, condition, both);
    Type type{a.dtype, {}};
    for (size_t d = 0; d < a.shape.size(); ++d)
      type.shape.push_back(sym::select(condition, a.shape[d], c.shape[d]));
    const auto x = b.known(then_results[i]), y = b.known(else_results[i]);
    std::optional<Elements> elements;
    if (x && y && a.shape == c.shape) {
      elements.emplace();
      for (size_t e = 0; e < x->size(); ++e) elements->push_back(sym::select(condition, (*x)[e], (*y)[e]));
    }
    out.types.push_back(std::move(type));
    out.elements.push_back(std::move(elements));
  }
  return out;
}

void if_lower(Lowering& l, const Node& node) {
  loop::If step{.condition = node.attributes.expr("condition"), .then_steps = {}, .else_steps = {}};
  std::vector<loop::View> outputs;
  for (ValueId output : node.outputs) outputs.push_back(l.define(output));
  for (int branch = 0; branch < 2; ++branch) {
    const graph::Region& region = node.regions[static_cast<size_t>(branch)];
    l.lower_region(region, branch == 0 ? step.then_steps : step.else_steps, [&] {
      for (size_t i = 0; i < outputs.size(); ++i) {
        loop::View to = outputs[i];
        to.shape = l.type(region.results[i]).shape;  // the branch's own sizes
        l.copy(l.view(region.results[i]), to, "branch_result");
      }
    });
  }
  l.steps().push_back({std::move(step)});
}

// ---- loop ------------------------------------------------------------------------------------------------

// Growth of each dim of each carried value; empty if nothing grows.
std::vector<std::vector<sym::Expr>> growths(const Node& node, const std::vector<size_t>& ranks) {
  std::vector<sym::Expr> flat;
  if (node.attributes.find("growth")) flat = node.attributes.exprs("growth");
  std::vector<std::vector<sym::Expr>> out;
  size_t at = 0;
  for (size_t rank : ranks) {
    STRIDEC_CHECK(flat.empty() || at + rank <= flat.size());
    out.emplace_back(rank, sym::Expr(0));
    for (size_t d = 0; d < rank && !flat.empty(); ++d) out.back()[d] = flat[at + d];
    at += rank;
  }
  return out;
}

// Whether memory is reserved for all iterations. For trip counts that are limits of integer types, not of
// models, it is extended during the run, and the condition alone ends the loop.
bool reserves_all(sym::Expr trip_count) {
  constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
  return !trip_count.is_const() || trip_count.value() < kMany;
}

bool is_unbounded(sym::Expr trip_count) { return trip_count.is_const() && trip_count.value() >= kUnbounded; }

Shape grown(Shape shape, const std::vector<sym::Expr>& growth, sym::Expr times) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (!growth[d].is_const(0)) shape[d] += growth[d] * times;
  return shape;
}

Inferred loop_shape(Builder& b, const Node& node) {
  STRIDEC_CHECK(node.regions.size() == 1);
  STRIDEC_CHECK(node.attributes.expr("counter").is_var() && node.attributes.expr("iterations").is_var());
  const bool conditional = node.attributes.integer("has_condition") != 0;
  const graph::Region& body = node.regions[0];
  const size_t carried = body.parameters.size(), first = conditional ? 1 : 0;
  STRIDEC_CHECK(node.inputs.size() == carried + first && body.results.size() >= carried + first);
  const sym::Expr rows = node.attributes.expr(conditional ? "iterations" : "trip_count");
  Inferred out;
  std::vector<size_t> ranks;
  for (size_t i = 0; i < carried; ++i) ranks.push_back(b.shape(node.inputs[first + i]).size());
  const auto growth = growths(node, ranks);
  for (size_t i = 0; i < carried; ++i) {
    Type type = b.type(node.inputs[first + i]);
    type.shape = grown(std::move(type.shape), growth[i], rows);
    out.types.push_back(std::move(type));
  }
  for (size_t i = first + carried; i < body.results.size(); ++i) {
    Type type = b.type(body.results[i]);
    type.shape.insert(type.shape.begin(), rows);
    out.types.push_back(std::move(type));
  }
  return out;
}

// Dims along which memory has to be extended: those that grow, and do not provably shrink.
std::vector<size_t> growing_dims(const std::vector<sym::Expr>& growth, const sym::Facts& facts) {
  std::vector<size_t> out;
  for (size_t d = 0; d < growth.size(); ++d)
    if (!growth[d].is_const(0) && !facts.holds(sym::le(growth[d], 0))) out.push_back(d);
  return out;
}

// Memory of a carried value that grows, with the dim that follows the loop's capacity outermost.
loop::View growing_memory(Lowering& l, Type type, size_t dim) {
  std::rotate(type.shape.begin(), type.shape.begin() + static_cast<std::ptrdiff_t>(dim),
              type.shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
  std::vector<int> order(type.shape.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d == dim ? 0 : d < dim ? d + 1 : d);
  return loop::permute(l.temporary(type, "loop_carried"), order);
}

class LoopLowering {
 public:
  LoopLowering(Lowering& l, const Node& node)
      : l_(l),
        node_(node),
        body_(node.regions[0]),
        conditional_(node.attributes.integer("has_condition") != 0),
        carried_(body_.parameters.size()),
        first_(conditional_ ? 1 : 0),
        step_{.counter = node.attributes.expr("counter"),
              .trip_count = node.attributes.expr("trip_count"),
              .condition = {},
              .iterations = node.attributes.expr("iterations"),
              .body = {}},
        extended_(carried_) {
    std::vector<size_t> ranks;
    for (size_t i = 0; i < carried_; ++i) ranks.push_back(start_of(i).shape.size());
    growth_ = growths(node, ranks);
  }

  void lower() {
    if (conditional_) hold_condition();
    extends_ = conditional_ && !reserves_all(step_.trip_count);
    if (extends_) find_extended();
    for (size_t i = 0; i < carried_; ++i) hold(i);
    // Stacked outputs are allocated for the largest number of iterations.
    for (size_t i = carried_; i < node_.outputs.size(); ++i) {
      Type type = l_.type(node_.outputs[i]);
      type.shape[0] = step_.trip_count;
      stacked_.push_back(conditional_ ? l_.temporary(type, "loop_stacked") : l_.define(node_.outputs[i]));
    }
    l_.lower_region(body_, step_.body, [this] { end_iteration(); });
    l_.steps().push_back({step_});
    for (size_t i = 0; i < carried_; ++i)
      if (grows(i)) l_.alias(node_.outputs[i], part(held_[i], l_.type(node_.outputs[i]).shape));
    for (size_t i = 0; conditional_ && i < stacked_.size(); ++i)
      l_.alias(node_.outputs[carried_ + i], loop::slice(stacked_[i], 0, 0, step_.iterations, 1));
  }

 private:
  const Type& start_of(size_t i) const { return l_.type(node_.inputs[first_ + i]); }

  bool grows(size_t i) const {
    return std::any_of(growth_[i].begin(), growth_[i].end(), [](sym::Expr g) { return !g.is_const(0); });
  }

  static loop::View part(loop::View view, const Shape& shape) {
    view.shape = shape;
    return view;
  }

  void hold_condition() {
    condition_ = l_.temporary({DType::kBool, {}}, "loop_condition");
    l_.copy(l_.view(node_.inputs[0]), condition_, "loop_condition");
    step_.condition = condition_.buffer;
  }

  // Finds the memory that is extended during the run. If there is any, the trip count becomes the number of
  // iterations that memory is allocated for.
  void find_extended() {
    bool any = carried_ < node_.outputs.size();
    for (size_t i = 0; i < carried_; ++i) {
      extended_[i] = growing_dims(growth_[i], l_.program().facts);
      // Where the trip count became known only after the loop was built, which checks it otherwise.
      if (extended_[i].size() > 1)
        fail(ErrorKind::kUnsupported, "unbounded-loop",
             "loop: a carried value grows along several dims without a bound on the number of iterations",
             "give the loop a trip count");
      any = any || !extended_[i].empty();
    }
    if (!any) return;
    step_.trip_count = l_.fresh_symbol("capacity", 1, kUnbounded);
    l_.program().facts.assume(sym::lt(step_.counter, step_.trip_count));
    l_.program().facts.assume(sym::le(step_.iterations, step_.trip_count));
  }

  // Memory for carried value i, which starts with the input's elements.
  void hold(size_t i) {
    const Type& start = start_of(i);
    held_.push_back(grows(i) ? memory_for_growth(i) : l_.define(node_.outputs[i]));
    l_.copy(l_.view(node_.inputs[first_ + i]), part(held_[i], start.shape), "loop_carried");
    l_.alias(body_.parameters[i], part(held_[i], l_.type(body_.parameters[i]).shape));
  }

  loop::View memory_for_growth(size_t i) {
    const Type& start = start_of(i);
    const std::vector<size_t>& extended = extended_[i];
    Type largest{start.dtype, start.shape};
    for (size_t d = 0; d < start.shape.size(); ++d)
      if (!growth_[i][d].is_const(0) &&
          (!extends_ || std::find(extended.begin(), extended.end(), d) != extended.end()))
        largest.shape[d] = sym::max(start.shape[d], start.shape[d] + growth_[i][d] * step_.trip_count);
    return extended.empty() ? l_.temporary(largest, "loop_carried")
                            : growing_memory(l_, largest, extended.front());
  }

  // Stores the results of the body.
  void end_iteration() {
    for (size_t i = 0; i < stacked_.size(); ++i) {
      const loop::View row = loop::drop_dim(loop::slice(stacked_[i], 0, step_.counter, 1, 1), 0);
      l_.copy(l_.view(body_.results[first_ + carried_ + i]), row, "loop_row");
    }
    if (conditional_) l_.copy(l_.view(body_.results[0]), condition_, "loop_condition");
    // Copy results that are views of carried buffers before any carried buffer changes.
    std::vector<std::optional<loop::View>> next;
    for (size_t i = 0; i < carried_; ++i) {
      const loop::View& result = l_.view(body_.results[first_ + i]);
      if (body_.results[first_ + i] == body_.parameters[i]) {
        next.push_back(std::nullopt);
        continue;
      }
      const bool aliased = std::any_of(held_.begin(), held_.end(),
                                       [&](const loop::View& h) { return h.buffer == result.buffer; });
      next.push_back(result);
      if (!aliased) continue;
      next.back() = l_.temporary({result.dtype, result.shape}, "loop_next");
      l_.copy(result, *next.back(), "loop_next");
    }
    for (size_t i = 0; i < carried_; ++i)
      if (next[i]) l_.copy(*next[i], part(held_[i], next[i]->shape), "loop_carried");
  }

  Lowering& l_;
  const Node& node_;
  const graph::Region& body_;
  const bool conditional_;
  const size_t carried_, first_;  // carried values; the first of them among inputs and results
  loop::While step_;
  std::vector<std::vector<sym::Expr>> growth_;
  bool extends_ = false;                       // memory during the run
  std::vector<std::vector<size_t>> extended_;  // dims, by carried value
  loop::View condition_;
  std::vector<loop::View> held_, stacked_;
};

void loop_lower(Lowering& l, const Node& node) { LoopLowering(l, node).lower(); }

}  // namespace

const OpDef def_kIf{if_shape, if_lower,
                    Gradient::of_regions(if_gradient, "captured: if(condition, gradient of then, of else)",
                                         "the branch is computed again")};
const OpDef def_kLoop{
    loop_shape, loop_lower,
    Gradient::of_regions(loop_gradient,
                         "carried, captured: the body's gradients, from the last iteration to the first",
                         "the loop stacks its carried values; the body is computed again")};

// ---- construction ----------------------------------------------------------------------------------------

namespace {

// The branch whose result has the declared rank while the other branch's does not.
struct Declared {
  bool first;
  size_t result;
  int64_t rank;
};
std::optional<Declared> declared_branch(const Builder& b, const std::vector<graph::Region>& branches,
                                        const std::vector<std::optional<int64_t>>& ranks) {
  const auto &x = branches[0].results, &y = branches[1].results;
  std::optional<Declared> out;
  for (size_t i = 0; i < x.size() && i < y.size() && i < ranks.size(); ++i) {
    const int of_x = b.rank(x[i]), of_y = b.rank(y[i]);
    if (of_x == of_y || !ranks[i] || (*ranks[i] != of_x && *ranks[i] != of_y)) continue;
    const bool first = *ranks[i] == of_x;
    if (out && out->first != first) return std::nullopt;
    out = Declared{first, i, *ranks[i]};
  }
  return out;
}

// Adds a guard that the condition selects the branch.
void require_branch(Builder& b, sym::Expr condition, const Declared& branch) {
  const sym::Expr chosen = branch.first ? condition : sym::logical_not(condition);
  std::vector<sym::Expr> values = sym::free_vars(chosen);
  size_t next = 0;
  const std::string sizes = join(
      values, ", ", [&](sym::Expr v) { return cat(sym::escaped(sym::to_string(v)), " = {", next++, "}"); });
  const std::string options = fixing_options(b, condition);
  b.require(chosen,
            cat("this run takes the ", branch.first ? "else_branch" : "then_branch",
                ", which is left out: its result ", branch.result, " does not have the ", branch.rank,
                " dims that the model declares or later nodes need (", sizes, ")",
                options.empty() ? "" : cat("; fix the input's value for it, as in ", sym::escaped(options))),
            std::move(values));
}

}  // namespace

std::vector<ValueId> join_branches(Builder& b, sym::Expr condition, std::vector<graph::Region> regions,
                                   const Branch& then_branch, const Branch& else_branch,
                                   const std::vector<std::optional<int64_t>>& ranks) {
  if (const auto declared = declared_branch(b, regions, ranks)) {
    require_branch(b, condition, *declared);
    return declared->first ? then_branch() : else_branch();
  }
  return b.add_with_regions(OpKind::kIf, {}, {{"condition", condition}}, std::move(regions));
}

std::vector<ValueId> if_else(Builder& b, ValueId condition, const Branch& then_branch,
                             const Branch& else_branch, const std::vector<std::optional<int64_t>>& ranks) {
  if (!is_bool(b.dtype(condition)))
    does_not_fit(cat("if: the condition is ", graph::to_string(b.type(condition))));
  const auto elements = b.elements_of(condition, "condition", 0, 1);
  if (elements.size() != 1) does_not_fit(cat("if: the condition is ", graph::to_string(b.type(condition))));
  const sym::Expr c = elements[0];
  if (b.prove(c) == sym::Answer::kYes) return then_branch();
  if (b.prove(c) == sym::Answer::kNo) return else_branch();
  std::vector<graph::Region> regions;
  for (const bool first : {true, false}) {
    OpenRegion region(b, {}, first ? c : sym::logical_not(c));
    regions.push_back(region.close(first ? then_branch() : else_branch()));
  }
  return join_branches(b, c, std::move(regions), then_branch, else_branch, ranks);
}

namespace {

// Whether a size depends only on the first `outside` symbols of the graph and on names of long sizes.
bool is_of_outside(Builder& b, sym::Expr size, size_t outside) {
  for (sym::Expr v : sym::free_vars(size))
    for (size_t s = outside; s < b.graph().symbols.size(); ++s)
      if (b.graph().symbols[s].var == v && !graph::is_size_name(b.graph(), v)) return false;
  return true;
}

// A loop without iterations returns its initial carried values and stacks no rows. Its body is built, as for
// a loop that may run, only to get the types of the rows, and then discarded.
LoopResult without_iterations(Builder& b, std::vector<ValueId> carried,
                              const std::function<LoopStep(const LoopState&)>& body) {
  std::vector<Type> types, rows;
  for (ValueId value : carried) types.push_back(b.type(value));
  const size_t outside = b.graph().symbols.size();
  const graph::Undo undo(b.graph());
  {
    const sym::Expr counter = b.fresh_symbol("iteration", 0, kUnbounded);
    const OpenRegion region(b, types, 0);
    const LoopStep next = body({counter, b.elements({counter}, {}), b.parameters()});
    for (ValueId row : next.stacked) {
      rows.push_back(b.type(row));
      // Rows have the size they have in the first iteration; a size that only an iteration can determine is
      // 0.
      for (sym::Expr& size : rows.back().shape) {
        size = b.simplify(sym::substitute(size, counter, 0));
        if (!is_of_outside(b, size, outside)) size = 0;
      }
    }
  }
  undo();
  LoopResult out{.carried = std::move(carried), .stacked = {}};
  for (Type& row : rows) {
    row.shape.insert(row.shape.begin(), 0);
    out.stacked.push_back(full(b, row.shape, row.dtype, 0));
  }
  return out;
}

class LoopBuilder {
 public:
  LoopBuilder(Builder& b, sym::Expr trip_count, std::optional<ValueId> condition,
              std::vector<ValueId> carried, const std::function<LoopStep(const LoopState&)>& body)
      : b_(b),
        trip_count_(trip_count),
        condition_(condition),
        carried_(std::move(carried)),
        body_(body),
        outside_(b.graph().symbols.size()),
        counter_(b.fresh_symbol("iteration", 0, sym::max(trip_count - 1, 0))) {
    for (ValueId value : carried_) types_.push_back(b.type(value));
  }

  LoopResult build() {
    build_body();
    find_growth();
    if (grows_) rebuild_with_growth();
    for (size_t i = 0; i < carried_.size(); ++i) check_carried(i);
    for (ValueId& row : next_.stacked) give_first_shape(row);
    return add();
  }

 private:
  void build_body() {
    open_.emplace(b_, types_, sym::lt(counter_, trip_count_));
    next_ = body_({counter_, b_.elements({counter_}, {}), b_.parameters()});
    STRIDEC_CHECK(next_.carried.size() == carried_.size());
  }

  // Whether the size is the same in all iterations.
  bool stays(sym::Expr size) const { return is_of_outside(b_, size, outside_); }

  [[noreturn]] void fail_changes(ValueId value) const {
    fail(ErrorKind::kUnsupported, "loop-shape",
         cat("loop: ", b_.display(value), " ", graph::to_string(b_.type(value)),
             " changes its shape from iteration to iteration"));
  }

  // Whether a size that may be 0 is added to another one. The difference that a broadcast makes depends on
  // the size before: one that may be 0 is 0, or no size changes by it in each iteration.
  bool is_added(sym::Expr more, sym::Expr size) const {
    const std::vector<sym::Expr> vars = sym::free_vars(size);
    return b_.prove(sym::le(0, more)) == sym::Answer::kYes &&
           std::none_of(vars.begin(), vars.end(), [&](sym::Expr var) { return sym::depends_on(more, var); });
  }

  // Finds the sizes that change by a fixed amount per iteration.
  void find_growth() {
    for (size_t i = 0; i < carried_.size(); ++i) {
      const Shape &from = types_[i].shape, &to = b_.shape(next_.carried[i]);
      growth_.emplace_back(from.size(), sym::Expr(0));
      for (size_t d = 0; d < from.size() && from.size() == to.size(); ++d) {
        const sym::Expr more = b_.simplify(to[d] - from[d]);
        const sym::Answer none = b_.prove(sym::eq(more, 0));
        if (none == sym::Answer::kYes || !stays(more)) continue;
        if (none == sym::Answer::kUnknown && !is_added(more, from[d])) continue;
        growth_[i][d] = more;
        grows_ = true;
      }
    }
  }

  // Builds the body again with sizes that depend on the counter.
  void rebuild_with_growth() {
    open_.reset();
    for (size_t i = 0; i < carried_.size() && !reserves_all(trip_count_); ++i)
      if (growing_dims(growth_[i], b_.graph().facts).size() > 1)
        fail(ErrorKind::kUnsupported, "unbounded-loop",
             cat("loop: ", b_.display(next_.carried[i]),
                 " grows along several dims without a bound on the number of iterations"),
             "give the loop a trip count");
    for (size_t i = 0; i < carried_.size(); ++i)
      types_[i].shape = grown(types_[i].shape, growth_[i], counter_);
    build_body();
  }

  // Requires that carried value i has the same type after each iteration, but for its growth.
  void check_carried(size_t i) {
    const ValueId value = next_.carried[i];
    const Type& start = types_[i];
    Type type = b_.type(value);
    // The type at the start of the iteration.
    if (type.shape.size() == start.shape.size())
      for (size_t d = 0; d < type.shape.size(); ++d)
        if (!growth_[i][d].is_const(0)) type.shape[d] = b_.simplify(type.shape[d] - growth_[i][d]);
    if (type.dtype != start.dtype)
      does_not_fit(cat("loop: carried value ", i, " starts as ", graph::to_string(start), " and becomes ",
                       graph::to_string(type)));
    if (type.shape.size() != start.shape.size()) fail_changes(value);
    for (size_t d = 0; d < type.shape.size(); ++d) {
      if (b_.prove(sym::eq(start.shape[d], type.shape[d])) == sym::Answer::kNo) fail_changes(value);
      expect_equal(b_, start.shape[d], type.shape[d], "loop: a carried size changes from {0} to {1}");
    }
  }

  // All rows have the shape of the first one; a guard in every iteration checks what cannot be proven.
  void give_first_shape(ValueId& row) {
    Shape first = b_.shape(row);
    for (sym::Expr& size : first) {
      if (stays(size)) continue;
      const sym::Expr here = size;
      size = b_.simplify(sym::substitute(here, counter_, 0));
      if (!stays(size) || b_.prove(sym::eq(here, size)) == sym::Answer::kNo) fail_changes(row);
      b_.require(sym::eq(here, size), "loop: a row has {0} where the first one has {1}", {here, size});
    }
    if (first != b_.shape(row)) row = reshape(b_, row, first);
  }

  // Whether the loop has a condition. One that starts known and that the body sets to true is dropped.
  bool is_conditional() const {
    if (!next_.condition) return condition_.has_value();
    const auto known = b_.known(*next_.condition);
    const auto start = condition_ ? b_.known(*condition_) : std::optional(Elements{1});
    return !known || !start || known->size() != 1 || start->size() != 1 || !(*known)[0].is_const(1) ||
           !(*start)[0].is_const();
  }

  ValueId as_scalar(ValueId value) const { return b_.rank(value) != 0 ? reshape(b_, value, {}) : value; }
  ValueId always() const { return b_.elements({1}, {}, DType::kBool); }

  // Ends the body and adds the node.
  LoopResult add() {
    const bool conditional = is_conditional();
    std::vector<ValueId> results;
    if (conditional) results.push_back(as_scalar(next_.condition ? *next_.condition : always()));
    results.insert(results.end(), next_.carried.begin(), next_.carried.end());
    results.insert(results.end(), next_.stacked.begin(), next_.stacked.end());
    if (!conditional && is_unbounded(trip_count_))
      fail(ErrorKind::kUnsupported, "unbounded-loop",
           "loop: nothing ends it: its condition is always true, and it has no trip count below 2^40",
           "give the loop a trip count, or a condition that becomes false");
    std::vector<graph::Region> regions;
    regions.push_back(open_->close(std::move(results)));
    std::vector<ValueId> inputs;
    if (conditional) inputs.push_back(as_scalar(condition_ ? *condition_ : always()));
    inputs.insert(inputs.end(), carried_.begin(), carried_.end());
    const auto outputs =
        b_.add_with_regions(OpKind::kLoop, std::move(inputs), attributes(conditional), std::move(regions));
    const auto split = outputs.begin() + static_cast<std::ptrdiff_t>(carried_.size());
    return {{outputs.begin(), split}, {split, outputs.end()}};
  }

  graph::Attributes attributes(bool conditional) const {
    const sym::Expr iterations = b_.fresh_symbol("iterations", 0, trip_count_);
    graph::Attributes out{{"trip_count", trip_count_},
                          {"counter", counter_},
                          {"iterations", iterations},
                          {"has_condition", int64_t{conditional}}};
    if (grows_) {
      std::vector<sym::Expr> flat;
      for (const auto& dims : growth_) flat.insert(flat.end(), dims.begin(), dims.end());
      out.set("growth", std::move(flat));
    }
    return out;
  }

  Builder& b_;
  const sym::Expr trip_count_;
  const std::optional<ValueId> condition_;
  const std::vector<ValueId> carried_;
  const std::function<LoopStep(const LoopState&)>& body_;
  const size_t outside_;  // how many symbols the graph has outside of the loop
  const sym::Expr counter_;
  std::vector<Type> types_;  // of the carried values, in the body
  LoopStep next_;
  std::optional<OpenRegion> open_;
  std::vector<std::vector<sym::Expr>> growth_;  // of each dim of each carried value
  bool grows_ = false;
};

}  // namespace

LoopResult loop(Builder& b, sym::Expr trip_count, std::optional<ValueId> condition,
                std::vector<ValueId> carried, const std::function<LoopStep(const LoopState&)>& body) {
  if (condition) {
    const auto known = b.known(*condition);
    if (known && known->size() == 1 && (*known)[0].is_const(0)) trip_count = 0;
    // A condition known to be true covers the first iteration only: the body's condition decides about later
    // ones.
  }
  if (b.holds(sym::le(trip_count, 0))) return without_iterations(b, std::move(carried), body);
  if (is_unbounded(trip_count)) trip_count = kUnbounded;  // sizes stay within 64 bits
  return LoopBuilder(b, trip_count, condition, std::move(carried), body).build();
}

}  // namespace stridec::ops

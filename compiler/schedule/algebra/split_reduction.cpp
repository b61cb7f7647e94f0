#include "compiler/schedule/algebra/split_reduction.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/variance.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::Buffer;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::ScalarOp;
using loop::Stmt;
using loop::ValueId;
using sym::Expr;

bool holds(const std::vector<Expr>& vars, Expr var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

const Dim* find(const std::vector<Dim>& dims, Expr var) {
  for (const Dim& dim : dims)
    if (dim.var == var) return &dim;
  return nullptr;
}

class Splitter {
 public:
  Splitter(Program& program, const Nest& nest, const ReductionSplit& split)
      : program_(program), nest_(nest), split_(split) {}

  std::vector<Nest> run(std::string* reason) {
    *reason = refusal();
    if (reason->empty() && reads_what_is_stored_before() && !move_up()) *reason = "it reads what it writes";
    if (!reason->empty()) return {};
    heavy_ = heavy_values();
    deviations_ = variance_after(nest_, at_, program_.facts);
    cross_boundary();
    place_partials();
    std::vector<Nest> out;
    if (Nest first = before(); !first.body.empty()) out.push_back(std::move(first));
    out.push_back(partials());
    out.push_back(after());
    for (Nest& part : out) loop::clean(program_, part);
    return out;
  }

 private:
  // ---- legality ----

  std::string refusal() {
    if (split_.keep.empty()) return "no dim is kept";
    for (size_t i = 0; i < nest_.body.size() && !reduce_; ++i)
      if (const auto* reduce = std::get_if<Reduce>(&nest_.body[i].node);
          reduce && find(reduce->dims, split_.keep[0])) {
        reduce_ = reduce;
        at_ = i;
      }
    if (!reduce_) return cat("no reduction of the nest runs over ", split_.keep[0].name());
    for (Expr var : split_.keep)
      if (!find(reduce_->dims, var)) return cat("the reduction does not run over ", var.name());
    if (split_.strip && (split_.keep.size() != 1 || reduce_->dims.size() != 1 || split_.join))
      return "tiles need a reduction over one dim";
    if (split_.join && !find(nest_.dims, *split_.join)) return cat("no parallel dim ", split_.join->name());
    for (const auto* dims : {&std::as_const(nest_).dims, &reduce_->dims})
      for (const Dim& dim : *dims)
        if (sym::has_index(dim.extent))
          return cat("the extent of ", dim.var.name(), " depends on other dims");
    std::string why;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      if (std::holds_alternative<loop::Bind>(stmt.node)) why = "an index is data";
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && store->update) why = "it scatters";
      const Access* access = loop::access_of(stmt);
      if (access && program_[access->buffer].storage == loop::Storage::kLocal)
        why = "a row is kept between its statements";
    });
    return why;
  }

  bool reads_what_is_stored_before() const {
    return std::any_of(nest_.body.begin(), nest_.body.begin() + static_cast<std::ptrdiff_t>(at_),
                       [&](const Stmt& stmt) {
                         const auto* store = std::get_if<loop::Store>(&stmt.node);
                         return store && loads(store->access.buffer);
                       });
  }

  // Moves the reduction and the statements that it depends on to the front of the body. Returns false if it
  // depends on another loop or on a store before it. Example: the two sums of a batch norm's backward pass,
  // each followed by the update of a parameter.
  bool move_up() {
    std::set<ValueId> used;
    std::set<BufferId> loaded;
    const auto add = [&](const Stmt& stmt) {
      loop::for_each_stmt(Block{stmt}, [&](const Stmt& inner) {
        loop::for_each_use(inner, [&](ValueId id) { used.insert(id); });
        if (const auto* load = std::get_if<loop::Load>(&inner.node)) loaded.insert(load->access.buffer);
      });
    };
    Block first = {nest_.body[at_]},
          others(nest_.body.begin() + static_cast<std::ptrdiff_t>(at_) + 1, nest_.body.end());
    add(first[0]);
    for (size_t i = at_; i-- > 0;) {
      const Stmt& stmt = nest_.body[i];
      bool needed = false;
      loop::for_each_result(stmt, [&](ValueId id) { needed = needed || used.contains(id); });
      if (needed && loop::body_of(stmt)) return false;
      if (needed) add(stmt);
      (needed ? first : others).insert((needed ? first : others).begin(), stmt);
    }
    for (size_t i = 0; i < at_; ++i)
      if (const auto* store = std::get_if<loop::Store>(&nest_.body[i].node);
          store && loaded.contains(store->access.buffer))
        return false;
    at_ = first.size() - 1;
    nest_.body = std::move(first);
    std::move(others.begin(), others.end(), std::back_inserter(nest_.body));
    reduce_ = &std::get<Reduce>(nest_.body[at_].node);
    return true;
  }

  // ---- values that the reduction and later statements use from before it ----

  // Whether the value is computed by loops, or from values that loops compute.
  bool is_heavy(ValueId id) const { return heavy_.contains(id); }
  std::set<ValueId> heavy_values() const {
    std::set<ValueId> heavy;
    for (size_t i = 0; i < at_; ++i) {
      const Stmt& stmt = nest_.body[i];
      bool is = loop::body_of(stmt) != nullptr;
      loop::for_each_use(stmt, [&](ValueId used) { is = is || heavy.contains(used); });
      if (is) loop::for_each_result(stmt, [&](ValueId id) { heavy.insert(id); });
    }
    return heavy;
  }

  // Heavy values go through memory: through a buffer that they are stored to anyway, or a new one.
  void cross_boundary() {
    std::set<ValueId> seen;
    auto use = [&](ValueId id) {
      if (!is_heavy(id) || !seen.insert(id).second) return;
      for (size_t i = 0; i < at_; ++i) {
        const auto* store = std::get_if<loop::Store>(&nest_.body[i].node);
        if (store && store->value == id && store->access.mask.is_const(1) &&
            stores_to(store->access.buffer) == 1) {
          passed_.push_back({id, store->access, false});
          return;
        }
      }
      Buffer buffer{.name = "", .dtype = nest_.values[id.value].dtype};
      Access access;
      for (const Dim& dim : nest_.dims) {
        buffer.shape.push_back(dim.extent);
        access.index.push_back(dim.var);
      }
      access.buffer = loop::add_buffer(program_, std::move(buffer));
      passed_.push_back({id, access, true});
    };
    for (size_t i = at_; i < nest_.body.size(); ++i) {
      const Block one = {nest_.body[i]};
      loop::for_each_stmt(one, [&](const Stmt& stmt) { loop::for_each_use(stmt, use); });
    }
  }

  bool loads(BufferId id) const {
    bool found = false;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      found = found || (load && load->access.buffer == id);
    });
    return found;
  }

  int stores_to(BufferId id) const {
    int count = 0;
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      count += store && store->access.buffer == id;
    });
    return count;
  }

  // The statements before the reduction, for the nests after the boundary: without stores, and with heavy
  // values loaded.
  Block prologue(Nest& nest) const {
    Block out;
    for (size_t i = 0; i < at_; ++i) {
      const Stmt& stmt = nest_.body[i];
      if (std::holds_alternative<loop::Store>(stmt.node)) continue;
      bool heavy = loop::body_of(stmt) != nullptr;
      loop::for_each_use(stmt, [&](ValueId id) { heavy = heavy || (is_heavy(id) && !passes(id)); });
      for (const Passed& passed : passed_) {
        bool here = false;
        loop::for_each_result(stmt, [&](ValueId id) { here = here || id == passed.value; });
        if (!here) continue;
        out.push_back({loop::Load{passed.value, passed.access,
                                  loop::float_scalar(nest.values[passed.value.value].dtype, 0)}});
        heavy = true;
      }
      if (!heavy) out.push_back(stmt);
    }
    return out;
  }
  bool passes(ValueId id) const {
    return std::any_of(passed_.begin(), passed_.end(), [&](const Passed& p) { return p.value == id; });
  }

  Nest before() const {
    Nest nest = nest_;
    nest.body.assign(nest_.body.begin(), nest_.body.begin() + static_cast<std::ptrdiff_t>(at_));
    for (const Passed& passed : passed_)
      if (passed.fresh) nest.body.push_back({loop::Store{.access = passed.access, .value = passed.value}});
    loop::eliminate_dead(nest);
    return nest;
  }

  // ---- partial results ----

  // Chooses the dims of the partial results, in the memory order of the reduced data.
  void place_partials() {
    Nest scope = nest_;
    loop::Cloner names(scope);
    std::vector<Dim> dims;
    for (const Dim& dim : nest_.dims)
      if (!split_.join || dim.var != *split_.join) dims.push_back(dim);
    if (split_.strip) {
      const Dim& dim = reduce_->dims[0];
      strip_ = names.fresh_index(sym::var(cat(dim.var.name(), ".t")));
      dims.push_back({strip_, sym::ceildiv(dim.extent, split_.strip)});
    } else {
      for (Expr var : split_.keep)
        if (!split_.join || var != split_.keep.back()) dims.push_back(*find(reduce_->dims, var));
    }
    if (split_.join) {
      const Dim &outer = *find(nest_.dims, *split_.join), &inner = *find(reduce_->dims, split_.keep.back());
      const Expr whole = names.fresh_index(sym::var(cat(outer.var.name(), ".j")));
      dims.push_back({whole, outer.extent * inner.extent});
      joined_[outer.var] = sym::floordiv(whole, inner.extent);
      joined_[inner.var] = sym::mod(whole, inner.extent);
      apart_[whole] = outer.var * inner.extent + inner.var;
    }
    std::vector<double> steps = steps_of(dims);
    std::vector<size_t> order(dims.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return steps[a] != steps[b] ? steps[a] > steps[b] : a < b; });
    for (size_t d : order) partial_dims_.push_back(dims[d]);
    std::vector<ValueId> kept = reduce_->yields;
    if (deviations_) kept.push_back(reduce_->yields[0]);
    for (ValueId yield : kept) {
      Buffer buffer{.name = "", .dtype = nest_.values[yield.value].dtype};
      for (const Dim& dim : partial_dims_) buffer.shape.push_back(dim.extent);
      partials_.push_back(loop::add_buffer(program_, std::move(buffer)));
    }
  }

  // The step along each dim of the first load in the reduction that moves along all of them. A product has no
  // such load: the steps of the result, with the kept dims outermost.
  std::vector<double> steps_of(const std::vector<Dim>& dims) const {
    std::vector<double> steps;
    loop::for_each_stmt(reduce_->body, [&](const Stmt& stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load || !steps.empty()) return;
      Access access = load->access;
      loop::substitute(access, joined_);
      if (split_.strip)
        loop::substitute(access, {{reduce_->dims[0].var, strip_ * split_.strip + reduce_->dims[0].var}});
      steps = steps_in(access, dims);
      if (std::ranges::any_of(steps, [](double step) { return step == 0; })) steps.clear();
    });
    if (!steps.empty()) return steps;
    for (const Stmt& stmt : nest_.body)
      if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && steps.empty())
        steps = steps_in(store->access, dims);
    steps.resize(dims.size());
    for (size_t d = 0; d < dims.size(); ++d)
      if (!find(nest_.dims, dims[d].var)) steps[d] = std::numeric_limits<double>::infinity();
    return steps;
  }

  // The step of an access along each dim; symbols count as 64.
  std::vector<double> steps_in(const Access& access, const std::vector<Dim>& dims) const {
    sym::Facts facts = program_.facts;
    for (const Dim& dim : dims) facts.set_index(dim.var, dim.extent);
    for (const Dim& dim : reduce_->dims) facts.set_index(dim.var, dim.extent);
    std::vector<double> steps;
    for (const Dim& dim : dims) {
      const auto stride = loop::stride_of(program_, access, dim.var, facts);
      const auto step =
          stride ? sym::evaluate(*stride, [](Expr) { return std::optional<int64_t>(64); }) : std::nullopt;
      steps.push_back(step ? std::fabs(static_cast<double>(*step)) : 0);
    }
    return steps;
  }

  // inner_dims: those reduced to a partial result. combined_dims: those over which partial results are
  // combined.
  std::vector<Dim> inner_dims() const {
    std::vector<Dim> dims = reduce_->dims;
    if (!split_.strip) {
      std::erase_if(dims, [&](const Dim& dim) { return holds(split_.keep, dim.var); });
      return dims;
    }
    const Expr extent = dims[0].extent;
    dims[0].extent = program_.facts.known_divisor(extent) % split_.strip == 0
                         ? Expr(split_.strip)
                         : sym::min(split_.strip, extent - strip_ * split_.strip);
    return dims;
  }
  std::vector<Dim> combined_dims() const {
    if (split_.strip) return {{strip_, sym::ceildiv(reduce_->dims[0].extent, split_.strip)}};
    std::vector<Dim> dims;
    for (Expr var : split_.keep) dims.push_back(*find(reduce_->dims, var));
    return dims;
  }

  Nest partials() {
    Nest nest = nest_;
    nest.dims = partial_dims_;
    nest.body = prologue(nest);
    Reduce inner = *reduce_;
    inner.byte_blocks = 0;
    inner.dims = inner_dims();
    if (split_.strip) {
      const Expr var = inner.dims[0].var;
      loop::substitute(inner.body, {{var, strip_ * split_.strip + var}});
    }
    std::vector<ValueId> results = inner.results;
    nest.body.push_back({std::move(inner)});
    // This comes first, since statements that are added take names different from those present.
    loop::substitute(nest.body, joined_);
    if (deviations_) results = sum_with_deviations(nest);
    for (size_t p = 0; p < partials_.size(); ++p) {
      loop::Store store{.access = {.buffer = partials_[p]}, .value = results[p]};
      for (const Dim& dim : partial_dims_) store.access.index.push_back(dim.var);
      nest.body.push_back({std::move(store)});
    }
    return nest;
  }

  // Replaces a part's sum, the last statement of the nest, by the sum and the squared deviations from the
  // part's mean, in one pass over x, which is shifted by one of the part's elements, k:
  //
  //   a = sum of (x - k)     b = sum of (x - k)^2     sum of x = n * k + a     deviations = b - a * a / n
  //
  // The subtraction loses the digits of 1 + n * (k - mean)^2 / deviations, which is at most n + 1, and small
  // unless k is an outlier: it is the median of three elements. (Chan, Golub, LeVeque: Algorithms for
  // Computing the Sample Variance, 1983.)
  std::vector<ValueId> sum_with_deviations(Nest& nest) const {
    Reduce sum = std::get<Reduce>(nest.body.back().node);
    nest.body.pop_back();
    const DType dtype = nest.values[sum.results[0].value].dtype;
    const ValueId one = element(nest, sum, 1), two = element(nest, sum, 2), three = element(nest, sum, 3);
    loop::Writer w{nest, nest.body};
    const ValueId low = w.let(ScalarOp::kMin, dtype, {one, two}),
                  high = w.let(ScalarOp::kMax, dtype, {one, two});
    const ValueId shift = w.let(ScalarOp::kMax, dtype, {low, w.let(ScalarOp::kMin, dtype, {high, three})});

    loop::Writer in_loop{nest, sum.body};
    const ValueId shifted = in_loop.let(ScalarOp::kSub, dtype, {sum.yields[0], shift});
    sum.yields = {shifted, in_loop.let(ScalarOp::kMul, dtype, {shifted, shifted})};
    sum.results.push_back(loop::add_value(nest, dtype));
    const ValueId a = sum.results[0], b = sum.results[1];
    nest.body.push_back({std::move(sum)});
    const ValueId n = w.index(points_of_part(), dtype);
    const ValueId total = w.let(ScalarOp::kAdd, dtype, {w.let(ScalarOp::kMul, dtype, {n, shift}), a});
    const ValueId of_shift = w.let(ScalarOp::kDiv, dtype, {w.let(ScalarOp::kMul, dtype, {a, a}), n});
    const ValueId deviations = w.let(ScalarOp::kSub, dtype, {b, of_shift});
    return {total, w.let(ScalarOp::kMax, dtype, {deviations, w.constant(loop::float_scalar(dtype, 0))})};
  }

  // Appends what the reduction yields at the point that is this number of quarters of the way through its
  // dims.
  ValueId element(Nest& nest, const Reduce& reduce, int quarters) const {
    loop::Cloner names(nest);
    loop::for_each_stmt(nest_.body, [&](const Stmt& stmt) {
      loop::for_each_use(stmt, [&](ValueId used) { names.map(used, used); });
    });
    Stmt copy = names.clone(nest, Stmt{reduce});
    auto& at_point = std::get<Reduce>(copy.node);
    sym::Substitution point;
    for (const Dim& dim : at_point.dims) point[dim.var] = sym::floordiv(dim.extent * quarters, 4);
    loop::substitute(at_point.body, point);
    std::ranges::move(at_point.body, std::back_inserter(nest.body));
    return at_point.yields[0];
  }

  // How many points of the reduction a partial result covers.
  Expr points_of_part() const {
    Expr points = 1;
    for (const Dim& dim : inner_dims()) points = points * dim.extent;
    return points;
  }

  static ValueId add_mean(loop::Writer w, ValueId total, Expr points) {
    const DType dtype = w.nest.values[total.value].dtype;
    return w.let(ScalarOp::kDiv, dtype, {total, w.index(points, dtype)});
  }

  // Replaces the sum over all points by the parts' deviations from their means plus the deviations of these
  // means from the overall mean.
  void add_all_deviations(Nest& nest) const {
    Reduce all = std::get<Reduce>(nest_.body[deviations_->at].node);
    const DType dtype = nest.values[all.results[0].value].dtype;
    loop::Cloner names(nest);
    all.dims.clear();
    all.body.clear();
    all.byte_blocks = 0;
    sym::Substitution parts;
    for (const Dim& dim : combined_dims()) {
      parts[dim.var] = names.fresh_index(dim.var);
      all.dims.push_back({parts[dim.var], dim.extent});
    }
    loop::Writer w{nest, all.body};
    std::vector<ValueId> loaded;
    for (BufferId id : partials_) {
      Access access = partial(id);
      loop::substitute(access, parts);
      loaded.push_back(w.load(dtype, std::move(access)));
    }
    const Expr points = sym::substitute(points_of_part(), parts);
    const ValueId mean = add_mean(w, loaded[0], points);
    const ValueId away = w.let(ScalarOp::kSub, dtype, {mean, deviations_->mean});
    const ValueId square = w.let(ScalarOp::kMul, dtype, {away, away});
    const ValueId of_means = w.let(ScalarOp::kMul, dtype, {square, w.index(points, dtype)});
    all.yields = {w.let(ScalarOp::kAdd, dtype, {loaded[1], of_means})};
    nest.body.push_back({std::move(all)});
  }

  // The access to a partial result where partial results are combined.
  Access partial(BufferId id) const {
    Access access{.buffer = id};
    for (const Dim& dim : partial_dims_) access.index.push_back(sym::substitute(dim.var, apart_));
    return access;
  }

  Nest after() {
    Nest nest = nest_;
    nest.body = prologue(nest);
    Reduce combine = *reduce_;
    combine.byte_blocks = 0;
    combine.dims = combined_dims();
    combine.body.clear();
    combine.yields.clear();
    loop::Writer w{nest, combine.body};
    for (size_t p = 0; p < reduce_->yields.size(); ++p)
      combine.yields.push_back(w.load(program_[partials_[p]].dtype, partial(partials_[p])));
    nest.body.push_back({std::move(combine)});
    for (size_t i = at_ + 1; i < nest_.body.size(); ++i) {
      if (deviations_ && i == deviations_->at)
        add_all_deviations(nest);
      else
        nest.body.push_back(nest_.body[i]);
    }
    return nest;
  }

  struct Passed {
    ValueId value;
    Access access;
    bool fresh;  // a new buffer
  };

  Program& program_;
  Nest nest_;  // a copy: the reduction may move up
  const ReductionSplit& split_;
  const Reduce* reduce_ = nullptr;
  size_t at_ = 0;  // position of the reduction in the body
  std::set<ValueId> heavy_;
  std::optional<VarianceSum> deviations_;
  std::vector<Passed> passed_;
  std::vector<Dim> partial_dims_;
  std::vector<BufferId> partials_;
  Expr strip_;
  sym::Substitution joined_, apart_;
};

}  // namespace

// ---- text -------------------------------------------------------------------------------------------------

loop::Directive to_directive(const ReductionSplit& split) {
  loop::Directive directive{"split_reduction", {}};
  for (Expr var : split.keep) directive.args.push_back(var.name());
  if (split.strip) directive.args.insert(directive.args.end(), {"by", cat(split.strip)});
  if (split.join) directive.args.insert(directive.args.end(), {"join", split.join->name()});
  return directive;
}

ReductionSplit to_reduction_split(const loop::Directive& directive) {
  auto bad = [&](const std::string& why) {
    fail(ErrorKind::kMalformed, "bad-schedule", cat("directive '", directive.name, "' ", why));
  };
  if (directive.name != "split_reduction") bad("splits no reduction");
  ReductionSplit split;
  const auto& args = directive.args;
  auto dim = [&](size_t i) {
    if (i >= args.size() || args[i].size() < 2 || args[i][0] != '%')
      bad(cat("needs a dim as argument ", i + 1));
    return sym::var(args[i]);
  };
  size_t i = 0;
  while (i < args.size() && args[i] != "by" && args[i] != "join") split.keep.push_back(dim(i++));
  if (split.keep.empty()) bad("names no dim");
  if (i < args.size() && args[i] == "by") {
    const std::string number = i + 1 < args.size() ? args[i + 1] : "";
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), split.strip);
    if (error != std::errc() || end != number.data() + number.size() || split.strip < 1)
      bad(cat("needs a positive number as argument ", i + 2));
    i += 2;
  }
  if (i < args.size() && args[i] == "join") {
    split.join = dim(i + 1);
    i += 2;
  }
  if (i != args.size()) bad(cat("has no use for '", args[i], "'"));
  return split;
}

std::vector<Nest> split_reduction(Program& program, const Nest& nest, const ReductionSplit& split,
                                  std::string* reason) {
  return Splitter(program, nest, split).run(reason);
}

}  // namespace stridec::schedule

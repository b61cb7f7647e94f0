#include "compiler/loop/value_range.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/demand.h"
#include "compiler/loop/index_range.h"
#include "compiler/loop/library.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

using sym::Expr;

// Sizes with an upper bound of kMostSize or more count as unbounded. A range without an upper bound then ends
// kFew above its lower one.
constexpr int64_t kMostSize = int64_t{1} << 20;
constexpr int64_t kFew = 3;
// Limit on constant data that is scanned for its minimum and maximum.
constexpr size_t kMostWeightBytes = size_t{64} << 20;
constexpr int kMostPasses = 3;  // limit on iterations; loops propagate demands backwards

// Whether `derive` ends without a number that leaves 64 bits. Constants that are hashes or limits of their
// dtype lead to such numbers, and no range follows from them.
template <class Derive>
bool fits(Derive&& derive) {
  try {
    derive();
    return true;
  } catch (const Error& error) {
    if (error.diagnostic.code != "size-overflow") throw;
    return false;
  }
}

// Constants of u64 are read as signed integers.
bool is_beyond_signed(DType dtype, int64_t least) { return dtype == DType::kU64 && least < 0; }

// Demands on every buffer, by backward data flow from uses to definitions: an index has to be within what it
// indexes; so do the elements of the buffer that it is loaded from, and so do the values stored there.
class Demanded {
 public:
  // `all_known`: every symbol is bound before the run.
  explicit Demanded(const Program& program, bool all_known = false)
      : program_(program), all_known_(all_known) {
    std::vector<const Step*> steps;
    for_each_step(program.steps, [&](const Step& step) { steps.push_back(&step); });
    for (int pass = 0; pass < kMostPasses; ++pass) {
      fresh_ = false;
      for (auto step = steps.rbegin(); step != steps.rend(); ++step) visit(**step);
      if (!fresh_) break;
    }
  }

  ValueRange of(BufferId id) const {
    ValueRange range;
    return fits([&] { range = range_of_demands(id); }) ? range : ValueRange();
  }
  const std::map<BufferId, Demands>& buffers() const { return buffers_; }

 private:
  friend class NestDemands;

  ValueRange range_of_demands(BufferId id) const;
  void visit(const Step& step);
  void pass(BufferId from, BufferId to) {  // a copy: propagates demands from `to` back to `from`
    const auto found = buffers_.find(to);
    if (found == buffers_.end()) {
      if (program_[to].storage == Storage::kOutput) add_other(from);
      return;
    }
    const Demands asked = found->second;
    fresh_ |= buffers_[from].add(asked);
  }
  void add(BufferId id, const Demand& demand) { fresh_ |= buffers_[id].add(demand); }
  void add_other(BufferId id) {
    fresh_ |= !buffers_[id].other;
    buffers_[id].other = true;
  }
  std::optional<Known> known_weight(const Buffer& buffer);
  Expr of_inputs(Expr e) const;

  const Program& program_;
  const bool all_known_;
  std::map<BufferId, Demands> buffers_;
  std::map<const uint8_t*, std::optional<Known>> weights_;
  std::set<BufferId> images_;
  std::map<const Let*, int> selects_;  // numbered, the same in each pass
  bool fresh_ = false;
};

class NestDemands {
 public:
  NestDemands(Demanded& outer, const Nest& nest)
      : outer_(outer),
        nest_(nest),
        rules_{outer.program_.facts, [this](ValueId id) { return known(id); },
               [this](ValueId id) { return nest_.values[id.value].dtype; }},
        values_(nest.values.size()),
        definitions_(nest.values.size(), nullptr),
        dims_(nest.dims) {
    for_each_stmt(nest.body, [&](const Stmt& stmt) {
      for_each_result(stmt, [&](ValueId id) { definitions_[id.value] = &stmt; });
      for (const Dim& dim : dims_of(stmt)) dims_.push_back(dim);
      if (const auto* bind = std::get_if<Bind>(&stmt.node)) dims_.push_back({bind->var, bind->extent});
    });
    visit_block(nest.body);
  }

 private:
  void ask(ValueId id, const Demand& demand) {
    if (!is_bool(rules_.dtype(id))) values_[id.value].add(demand);
  }
  void ask_all(ValueId id, const Demands& demands) {
    for (const Demand& demand : demands.all) ask(id, demand);
    values_[id.value].add_uses(demands);
  }

  // In reverse order: demands on a loop's results are known before its body is visited. A scan's body is
  // visited twice, for its carried values.
  void visit_block(const Block& block) {
    for (auto stmt = block.rbegin(); stmt != block.rend(); ++stmt) {
      const Block* body = body_of(*stmt);
      const int rounds = std::holds_alternative<Scan>(stmt->node) ? 2 : 1;
      for (int round = 0; round < rounds; ++round) {
        if (!fits([&] { visit_stmt(*stmt); }))
          for_each_use(*stmt, [&](ValueId id) { values_[id.value].other = true; });
        if (body) visit_block(*body);
      }
    }
  }

  void visit_stmt(const Stmt& stmt) {
    if (body_of(stmt)) for_each_use(stmt, [&](ValueId id) { values_[id.value].other = true; });
    if (const auto* let = std::get_if<Let>(&stmt.node)) {
      visit_let(*let);
    } else if (const auto* bind = std::get_if<Bind>(&stmt.node)) {
      ask(bind->value,
          {.least = 0, .most = bind->extent - 1, .hint = bind->mode != Bind::OutOfRange::kError});
    } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
      const auto found = outer_.buffers_.find(store->access.buffer);
      const bool seen = found != outer_.buffers_.end();
      if (seen) ask_all(store->value, found->second);
      values_[store->value.value].other |=
          !seen && outer_.program_[store->access.buffer].storage != Storage::kLocal;
    } else if (const auto* load = std::get_if<Load>(&stmt.node)) {
      outer_.fresh_ |= outer_.buffers_[load->access.buffer].add(values_[load->result.value]);
    } else if (const auto* reduce = std::get_if<Reduce>(&stmt.node)) {
      visit_reduce(*reduce);
    } else if (const auto* scan = std::get_if<Scan>(&stmt.node)) {
      visit_scan(*scan);
    }
  }

  void visit_let(const Let& let) {
    if (let.op == ScalarOp::kSelect) return visit_select(let);
    const bool compares = let.op == ScalarOp::kEq || let.op == ScalarOp::kNe || let.op == ScalarOp::kLt ||
                          let.op == ScalarOp::kLe;
    if (compares) return visit_comparison(let);
    const Demands asked = values_[let.result.value];
    const bool converts = let.op == ScalarOp::kCast || let.op == ScalarOp::kCastSat;
    const bool to_mask = converts && !is_integer(rules_.dtype(let.result));
    const bool shared = running_sums_.contains(let.result);
    for (size_t arg = 0; arg < let.args.size(); ++arg) {
      for (const Demand& demand : shared ? std::vector<Demand>() : asked.all)
        if (const auto passed = demand_of_argument(rules_, let, arg, demand)) ask(let.args[arg], *passed);
      if (const auto own = demand_of_domain(rules_, let, arg)) ask(let.args[arg], *own);
      Demands& own_use = values_[let.args[arg].value];
      if (converts && !to_mask && !own_use.equals) own_use.equals = asked.equals;
      own_use.other |= converts ? !to_mask && asked.other : true;
      own_use.floats |= converts && (is_float(rules_.dtype(let.result)) || asked.floats);
    }
  }

  // Each side's demand applies only where that side is selected.
  void visit_select(const Let& let) {
    const Demands asked = values_[let.result.value];
    const auto [select, fresh] =
        outer_.selects_.try_emplace(&let, static_cast<int>(outer_.selects_.size()) + 1);
    for (const size_t side : {1, 2}) {
      for (Demand demand : asked.all) {
        if (!demand.select) demand.select = select->second, demand.taken = side == 1;
        ask(let.args[side], demand);
      }
      values_[let.args[side].value].other |= asked.other;
      values_[let.args[side].value].floats |= asked.floats;
    }
  }

  // A value that is compared with an index has the index's range, extended by one.
  void visit_comparison(const Let& let) {
    const bool ordered = let.op == ScalarOp::kLt || let.op == ScalarOp::kLe;
    for (size_t arg = 0; arg < 2; ++arg) {
      if (!is_integer(rules_.dtype(let.args[arg]))) continue;
      const auto other = known(let.args[1 - arg]);
      const auto number =
          other && !ordered && other->least == other->most ? sym::as_const(other->least) : std::nullopt;
      if (number && !values_[let.args[arg].value].equals) values_[let.args[arg].value].equals = number;
      if (!other || sym::simplify(other->least - other->most, rules_.facts).is_const(0)) continue;
      const Expr least = other->least, most = other->most;
      ask(let.args[arg], {.least = ordered ? sym::min(least + 1, most) : least,
                          .most = ordered ? most + 1 : most,
                          .hint = true});
    }
  }

  void visit_reduce(const Reduce& reduce) {
    Expr extent = 1;
    for (const Dim& dim : reduce.dims) extent *= dim.extent;
    for (size_t i = 0; i < reduce.yields.size() && i < reduce.results.size(); ++i) {
      const Demands& asked = values_[reduce.results[i].value];
      if (arity(reduce.combine) > 1) return;
      for (const Demand& demand : asked.all) combine(reduce.combine, extent, demand, reduce.yields[i]);
    }
  }

  void combine(Combine with, Expr extent, const Demand& demand, ValueId yield) {
    if (with == Combine::kMax || with == Combine::kMin) return ask(yield, demand);
    if (with != Combine::kSum || sym::has_index(extent)) return;
    ask_terms(extent, demand, yield);
  }

  // Each of `count` terms of a sum gets an equal share of the range.
  void ask_terms(Expr count, const Demand& demand, ValueId term) {
    if (!is_integer(rules_.dtype(term)) && demand.most) return;
    Demand share = demand;
    if (share.least) share.least = sym::max(*share.least, 0);
    if (share.most) {
      if (!rules_.facts.holds(sym::ge(*share.most, 0))) return;
      share.most = sym::floordiv(*share.most, sym::max(count, 1));
    }
    ask(term, share);
  }

  // In a running sum each term gets an equal share; other scans put no demands on their terms.
  void visit_scan(const Scan& scan) {
    for (size_t i = 0; i < scan.yields.size() && i < scan.results.size(); ++i) {
      Demands asked = values_[scan.results[i].value];
      asked.add(values_[scan.carried[i].value]);
      asked.add(values_[scan.yields[i].value]);
      ask_all(scan.init[i], asked);
      const Stmt* by = definitions_[scan.yields[i].value];
      const auto* let = by ? std::get_if<Let>(&by->node) : nullptr;
      if (!let || let->op != ScalarOp::kAdd) continue;
      running_sums_.insert(let->result);
      for (size_t arg = 0; arg < 2; ++arg)
        if (let->args[1 - arg] == scan.carried[i])
          for (const Demand& demand : asked.all) ask_terms(scan.dim.extent, demand, let->args[arg]);
    }
  }

  std::optional<Known> known(ValueId id) {
    const auto [at, fresh] = known_.try_emplace(id.value);
    if (!fresh) return at->second;
    const auto found = make_known(id);
    return known_[id.value] = found;
  }

  std::optional<Known> make_known(ValueId id) {
    const Stmt* by = definitions_[id.value];
    if (!by) return std::nullopt;
    if (const auto* constant = std::get_if<Constant>(&by->node)) {
      const Scalar& value = constant->value;
      if (is_beyond_signed(value.dtype, value.i)) return std::nullopt;
      if (!is_float(value.dtype)) return Known{value.i, value.i, static_cast<double>(value.i)};
      if (!(std::abs(value.f) < 1e15)) return std::nullopt;
      return Known{static_cast<int64_t>(std::floor(value.f)), static_cast<int64_t>(std::ceil(value.f)),
                   value.f};
    }
    if (const auto* index = std::get_if<IndexValue>(&by->node)) {
      const auto range = range_of(index->expr, dims_);
      if (!range) return std::nullopt;
      return Known{range->least, range->most, std::nullopt};
    }
    if (const auto* load = std::get_if<Load>(&by->node))
      return outer_.known_weight(outer_.program_[load->access.buffer]);
    const auto* let = std::get_if<Let>(&by->node);
    return let ? known_result(rules_, *let) : std::nullopt;
  }

  Demanded& outer_;
  const Nest& nest_;
  DemandRules rules_;
  std::vector<Demands> values_;
  std::vector<const Stmt*> definitions_;
  std::vector<Dim> dims_;
  std::unordered_map<int32_t, std::optional<Known>> known_;
  std::set<ValueId> running_sums_;  // visit_scan handles their terms
};

void Demanded::visit(const Step& step) {
  if (const auto* bind = std::get_if<BindSymbol>(&step.node)) {
    const auto upper = sym::as_const(bind->upper), lower = sym::as_const(bind->lower);
    Demand demand;
    demand.hint = lower && *lower < -kMostSize;  // effectively unbounded: prefer non-negative values
    demand.least = demand.hint ? Expr(0) : bind->lower;
    if (!upper || *upper < kMostSize) demand.most = bind->upper;
    add(bind->buffer, demand);
  } else if (const auto* copy = std::get_if<Copy>(&step.node)) {
    pass(copy->from, copy->to);
  } else if (const auto* call = std::get_if<Call>(&step.node)) {
    const LibraryRoutine* routine = find_routine(call->routine);
    if (routine && routine->selects) pass(call->reads[0], call->writes[0]);
    for (const BufferId id : call->reads) add_other(id);
    if (routine && routine->reads_image) images_.insert(call->reads[0]);
  } else if (const auto* launch = std::get_if<Launch>(&step.node)) {
    NestDemands(*this, program_[launch->nest]);
  }
}

std::optional<Known> Demanded::known_weight(const Buffer& buffer) {
  if (!is_constant(buffer) || !buffer.weight.bytes || is_float(buffer.dtype) ||
      buffer.weight.size > kMostWeightBytes)
    return std::nullopt;
  const auto [at, fresh] = weights_.try_emplace(buffer.weight.bytes);
  if (!fresh) return at->second;
  const auto item = static_cast<size_t>(byte_size(buffer.dtype));
  if (buffer.weight.size < item) return std::nullopt;
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (size_t byte = 0; byte + item <= buffer.weight.size; byte += item) {
    const int64_t value = read_integer(buffer.dtype, buffer.weight.bytes + byte);
    least = std::min(least, value), most = std::max(most, value);
  }
  if (!is_beyond_signed(buffer.dtype, least)) at->second = Known{least, most, std::nullopt};
  return at->second;
}

// Symbols that are bound during the run count at their minimum, but at least 1.
Expr Demanded::of_inputs(Expr e) const {
  sym::Substitution least;
  for (const Expr var : sym::free_vars(e)) {
    const bool given =
        all_known_ || std::any_of(program_.symbols.begin(), program_.symbols.end(), [&](const Symbol& s) {
          return s.var == var && is_bound_before_run(program_, s);
        });
    if (given) continue;
    const sym::Interval range = program_.facts.bounds(var);
    least[var] = std::max<int64_t>(1, range.has_lo() ? range.lo : 1);
  }
  return sym::simplify(sym::substitute(e, least), program_.facts);
}

ValueRange Demanded::range_of_demands(BufferId id) const {
  ValueRange range;
  if (images_.contains(id)) return {.least = {}, .most = {}, .image = true};
  const DType dtype = program_[id].dtype;
  const auto found = buffers_.find(id);
  if (found == buffers_.end() || is_bool(dtype)) return range;
  const std::vector<Demand>& all = found->second.all;
  const auto narrow = [&](const Demand& demand) {
    if (demand.least) {
      const Expr least = of_inputs(*demand.least);
      range.least = range.least ? sym::simplify(sym::max(*range.least, least), program_.facts) : least;
    }
    if (demand.most) {
      const Expr most = of_inputs(*demand.most);
      range.most = range.most ? sym::simplify(sym::min(*range.most, most), program_.facts) : most;
    }
  };
  // For an index that may count from the end (i < 0 ? i + n : i), keep only the side that uses i unchanged.
  const auto left_out = [&](const Demand& demand) {
    if (!demand.select || !demand.least || program_.facts.holds(sym::ge(*demand.least, 0))) return false;
    return std::any_of(all.begin(), all.end(), [&](const Demand& other) {
      return other.select == demand.select && other.taken != demand.taken && other.least &&
             program_.facts.holds(sym::ge(*other.least, 0));
    });
  };
  for (const Demand& demand : all)
    if (!demand.hint && !left_out(demand)) narrow(demand);
  // Apply hints unless they make the range empty.
  for (const Demand& demand : all) {
    if (!demand.hint || left_out(demand)) continue;
    const ValueRange before = range;
    narrow(demand);
    const bool empty = range.least && range.most &&
                       program_.facts.prove(sym::le(*range.least, *range.most)) == sym::Answer::kNo;
    if (empty) range = before;
  }
  if (!is_integer(dtype)) return range;
  if (range.least && !range.most) range.most = sym::max(*range.least, 1) + kFew;
  if (range.most && !range.least) range.least = sym::simplify(sym::min(*range.most, 0), program_.facts);
  if (!range.none() || found->second.other) return range;
  // Remaining cases: a value that is compared for equality, pixel bytes, or a mask.
  const auto equals = found->second.equals;
  if (equals && (*equals < 0 || *equals > 1))
    return {.least = Expr(*equals) - 1, .most = Expr(*equals), .image = false};
  if (found->second.floats && dtype == DType::kU8)
    return {.least = Expr(0), .most = Expr(255), .image = false};
  return {.least = Expr(0), .most = Expr(1), .image = false};
}

}  // namespace

std::vector<ValueRange> input_ranges(const Program& program) {
  const Demanded demanded(program);
  std::vector<ValueRange> ranges;
  for (const BufferId id : program.inputs) ranges.push_back(demanded.of(id));
  return ranges;
}

std::map<BufferId, ValueRange> integer_ranges(const Program& program) {
  const Demanded demanded(program, true);
  std::map<BufferId, ValueRange> ranges;
  for (const auto& [id, demands] : demanded.buffers()) {
    const ValueRange range = is_integer(program[id].dtype) ? demanded.of(id) : ValueRange();
    if (!range.none()) ranges[id] = range;
  }
  return ranges;
}

}  // namespace stridec::loop

#include "compiler/kernels/flash.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "compiler/base/check.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::kernels {
namespace {

using loop::Let;
using loop::Load;
using loop::ScalarOp;
using loop::Stmt;
using loop::Store;
using loop::ValueId;
using sym::Expr;

using Definitions = std::map<ValueId, const Stmt*>;

Definitions definitions_of(const loop::Block& block) {
  Definitions out;
  loop::for_each_stmt(
      block, [&](const Stmt& stmt) { loop::for_each_result(stmt, [&](ValueId id) { out[id] = &stmt; }); });
  return out;
}

const Let* let_of(const Definitions& definitions, ValueId id) {
  const auto found = definitions.find(id);
  return found == definitions.end() ? nullptr : std::get_if<Let>(&found->second->node);
}

std::optional<loop::Scalar> constant_of(const Definitions& definitions, ValueId id) {
  const auto found = definitions.find(id);
  if (found == definitions.end()) return std::nullopt;
  if (const auto* constant = std::get_if<loop::Constant>(&found->second->node)) return constant->value;
  return std::nullopt;
}

bool is_cast(const Let* let) { return let && (let->op == ScalarOp::kCast || let->op == ScalarOp::kCastSat); }

// ---- row statements --------------------------------------------------------------------------------------

// What a value or an element of a local row is.
enum class Role { kOther, kScore, kMax, kShifted, kWeight, kSum, kInverse, kShare, kIsNan };

class Rows {
 public:
  Rows(const loop::Program& program, Flash& flash)
      : program_(program), flash_(flash), nest_(flash.rows_nest()), definitions_(definitions_of(nest_.body)) {
    rows_[flash.score->access.buffer] = Role::kScore;
  }

  std::string reason = "its row statements are no softmax";

  // Sets what they say in the Flash, given the local buffer that the second link reads.
  bool match(loop::BufferId shares) {
    for (const Stmt& stmt : nest_.body)
      if (!statement(stmt)) return false;
    const auto found = rows_.find(shares);
    if (found == rows_.end() || found->second != Role::kShare) return false;
    flash_.guarded = guarded_.contains(shares);
    if (const auto fix = fixes_.find(shares); fix != fixes_.end()) {
      flash_.fixes = fix->second.first;
      flash_.fixed = fix->second.second;
      // What computes them stands at the top, before any row statement.
      for (const Stmt& stmt : nest_.body) {
        if (loop::body_of(stmt)) continue;
        bool own = true;
        loop::for_each_result(stmt, [&](ValueId id) { own = own && role(id) == Role::kOther; });
        if (own) flash_.row_statements.push_back(&stmt);
      }
    }
    return true;
  }

 private:
  Role role(ValueId id) const {
    const auto found = roles_.find(id);
    return found == roles_.end() ? Role::kOther : found->second;
  }

  bool is_zero(ValueId id) const {
    const auto constant = constant_of(definitions_, id);
    return constant && constant->f == 0 && constant->i == 0;
  }

  // Over all keys, one dim.
  bool over_keys(const std::vector<loop::Dim>& dims) const {
    return dims.size() == 1 && dims[0].extent == flash_.keys.extent;
  }

  bool statement(const Stmt& stmt) {
    if (const auto* reduce = std::get_if<loop::Reduce>(&stmt.node)) {
      if (!over_keys(reduce->dims) || reduce->yields.size() != 1) return false;
      for (const Stmt& inner : reduce->body)
        if (!element(inner, reduce->dims[0].var)) return false;
      const Role yielded = role(reduce->yields[0]);
      const DType dtype = nest_.values[reduce->results[0].value].dtype;
      if (reduce->combine == loop::Combine::kMax && yielded == Role::kScore)
        roles_[reduce->results[0]] = Role::kMax;
      else if (reduce->combine == loop::Combine::kSum && yielded == Role::kWeight && dtype == DType::kF32)
        roles_[reduce->results[0]] = Role::kSum;
      else
        return false;
      return true;
    }
    if (const auto* loop = std::get_if<loop::For>(&stmt.node)) {
      if (!over_keys(loop->dims)) return false;
      for (const Stmt& inner : loop->body)
        if (!element(inner, loop->dims[0].var)) return false;
      return true;
    }
    if (std::holds_alternative<Store>(stmt.node)) return false;
    if (const auto* let = std::get_if<Let>(&stmt.node)) return scalar(*let);
    return !loop::body_of(stmt);
  }

  // At the top: of the row as a whole.
  bool scalar(const Let& let) {
    bool touches = false;
    for (ValueId arg : let.args) touches = touches || role(arg) != Role::kOther;
    if (!touches) return true;
    const bool inverts = let.op == ScalarOp::kRcp && role(let.args[0]) == Role::kSum;
    const auto one = let.op == ScalarOp::kDiv ? constant_of(definitions_, let.args[0]) : std::nullopt;
    if (inverts || (one && one->f == 1 && role(let.args[1]) == Role::kSum)) {
      roles_[let.result] = Role::kInverse;
      return true;
    }
    if (let.op == ScalarOp::kCast && nest_.values[let.result.value].dtype == DType::kF32) {
      roles_[let.result] = role(let.args[0]);  // a wider maximum
      return true;
    }
    return false;
  }

  // In a loop over keys.
  bool element(const Stmt& stmt, Expr at) {
    if (const auto* load = std::get_if<Load>(&stmt.node)) {
      const auto found = rows_.find(load->access.buffer);
      if (found == rows_.end()) return false;  // what lies beside the scores has no place here
      if (!is_row(load->access, at)) return false;
      roles_[load->result] = found->second;
      if (guarded_.contains(load->access.buffer)) guarded_values_.insert(load->result);
      if (const auto fix = fixes_.find(load->access.buffer); fix != fixes_.end())
        fixed_values_[load->result] = fix->second;
      return true;
    }
    if (const auto* store = std::get_if<Store>(&stmt.node)) {
      const Role what = role(store->value);
      const bool known = what == Role::kScore || what == Role::kWeight || what == Role::kShare;
      if (!known || !is_row(store->access, at) || store->update) return false;
      const loop::BufferId to = store->access.buffer;
      rows_[to] = what;
      guarded_.erase(to);
      fixes_.erase(to);
      if (guarded_values_.contains(store->value)) guarded_.insert(to);
      if (const auto fix = fixed_values_.find(store->value); fix != fixed_values_.end())
        fixes_[to] = fix->second;
      return true;
    }
    if (const auto* let = std::get_if<Let>(&stmt.node)) return element(*let);
    return std::holds_alternative<loop::Constant>(stmt.node);
  }

  bool is_row(const loop::Access& access, Expr at) const {
    return program_[access.buffer].storage == loop::Storage::kLocal && access.index.size() == 1 &&
           access.index[0] == at && access.mask.is_const(1);
  }

  bool element(const Let& let) {
    auto is = [&](size_t arg, Role what) { return role(let.args[arg]) == what; };
    const DType dtype = nest_.values[let.result.value].dtype;
    Role made = Role::kOther;
    switch (let.op) {
      case ScalarOp::kCast:
      case ScalarOp::kCastSat:
        // Scores may become f32, shares whatever the second link multiplies.
        if ((is(0, Role::kScore) && dtype == DType::kF32) || is(0, Role::kShare)) {
          made = role(let.args[0]);
          if (guarded_values_.contains(let.args[0])) guarded_values_.insert(let.result);
          if (const auto fix = fixed_values_.find(let.args[0]); fix != fixed_values_.end())
            fixed_values_[let.result] = fix->second;
        }
        break;
      case ScalarOp::kSub:
        if (is(0, Role::kScore) && is(1, Role::kMax) && dtype == DType::kF32) made = Role::kShifted;
        break;
      case ScalarOp::kExp:
        if (is(0, Role::kShifted) && dtype == DType::kF32) made = Role::kWeight;
        break;
      case ScalarOp::kDiv:
        if (is(0, Role::kWeight) && is(1, Role::kSum)) made = Role::kShare;
        break;
      case ScalarOp::kMul:
        if ((is(0, Role::kWeight) && is(1, Role::kInverse)) ||
            (is(1, Role::kWeight) && is(0, Role::kInverse)))
          made = Role::kShare;
        break;
      case ScalarOp::kIsNan:
        if (is(0, Role::kShare)) made = Role::kIsNan;
        break;
      case ScalarOp::kSelect: made = selected(let); break;
      default: break;
    }
    if (made == Role::kOther) {
      for (ValueId arg : let.args)
        if (role(arg) != Role::kOther) return false;
      return true;
    }
    roles_[let.result] = made;
    return true;
  }

  Role selected(const Let& let) {
    if (role(let.args[2]) != Role::kShare || fixed_values_.contains(let.args[2])) return Role::kOther;
    if (role(let.args[0]) == Role::kIsNan && is_zero(let.args[1])) {
      guarded_values_.insert(let.result);
      return Role::kShare;
    }
    // A condition of the row and a value of the row: neither is made in a loop.
    if (role(let.args[0]) != Role::kOther || role(let.args[1]) != Role::kOther) return Role::kOther;
    for (ValueId arg : {let.args[0], let.args[1]}) {
      bool top = false;
      for (const Stmt& stmt : nest_.body)
        loop::for_each_result(stmt, [&](ValueId id) { top = top || id == arg; });
      if (!top) return Role::kOther;
    }
    if (guarded_values_.contains(let.args[2])) guarded_values_.insert(let.result);
    fixed_values_[let.result] = {let.args[0], let.args[1]};
    return Role::kShare;
  }

  using Fix = std::pair<ValueId, ValueId>;
  const loop::Program& program_;
  Flash& flash_;
  const loop::Nest& nest_;
  const Definitions definitions_;
  std::map<ValueId, Role> roles_;
  std::map<loop::BufferId, Role> rows_;
  std::set<loop::BufferId> guarded_;
  std::map<loop::BufferId, Fix> fixes_;
  std::set<ValueId> guarded_values_;
  std::map<ValueId, Fix> fixed_values_;
};

// ---- masks -----------------------------------------------------------------------------------------------

// Finds a mask of indices among the statements of the scores.
class Mask {
 public:
  Mask(const loop::Program& program, const Flash& flash, bool assumes)
      : flash_(flash),
        assumes_(assumes),
        nest_(flash.scores_nest()),
        facts_(facts_in(program, nest_, flash.scores)),
        definitions_(definitions_of(nest_.body)) {}

  struct Seen {
    Expr keys;
    ValueId value;
    bool truth, weightless;
    bool alone;     // it says all that the score's condition says
    ValueId score;  // what it hides
    std::optional<Expr> given;  // `weightless` under this condition
  };
  std::optional<Seen> find() const { return of_score(flash_.score->value); }

  // The number that the value is the sum times.
  std::optional<double> scale_of(ValueId id) const {
    if (id == flash_.scores.reduce->results[0]) return 1.0;
    const Let* let = let_of(definitions_, id);
    if (!let) return std::nullopt;
    if (let->op == ScalarOp::kCast && is_float(nest_.values[id.value].dtype)) return scale_of(let->args[0]);
    if (let->op != ScalarOp::kMul && let->op != ScalarOp::kDiv) return std::nullopt;
    const auto by = constant_of(definitions_, let->args[1]);
    const auto from = scale_of(let->args[0]);
    if (!by || !from) return std::nullopt;
    return let->op == ScalarOp::kMul ? *from * by->f : *from / by->f;
  }

 private:
  struct Condition {
    Expr holds;
    ValueId value;
    bool truth;
  };
  // A value that hides a key: no weight is left beside a score that is not hidden. Of the dtype's lowest number that
  // holds where that other score is sure to be there.
  enum class Hides { kNo, kLowest, kInfinite };
  Hides hides(ValueId id) const {
    while (is_cast(let_of(definitions_, id))) id = let_of(definitions_, id)->args[0];
    const auto constant = constant_of(definitions_, id);
    if (!constant || !is_float(constant->dtype) || constant->f > -65504) return Hides::kNo;
    return std::isinf(constant->f) ? Hides::kInfinite : Hides::kLowest;
  }
  bool is_zero(ValueId id) const {
    while (is_cast(let_of(definitions_, id))) id = let_of(definitions_, id)->args[0];
    const auto constant = constant_of(definitions_, id);
    return constant && constant->f == 0 && constant->i == 0;
  }

  std::optional<Seen> of_score(ValueId id) const {
    const Let* let = let_of(definitions_, id);
    if (!let) return std::nullopt;
    if (is_cast(let)) return of_score(let->args[0]);
    if (let->op == ScalarOp::kSelect) return of_select(*let, false);
    if (let->op != ScalarOp::kAdd) return std::nullopt;
    for (int side : {0, 1}) {
      ValueId bias = let->args[static_cast<size_t>(side)];
      while (is_cast(let_of(definitions_, bias))) bias = let_of(definitions_, bias)->args[0];
      const Let* select = let_of(definitions_, bias);
      if (select && select->op == ScalarOp::kSelect)
        if (auto found = of_select(*select, true, let->args[static_cast<size_t>(1 - side)])) return found;
    }
    return std::nullopt;
  }

  // visible ? x : lowest, or the other way round; `added`: x is 0, and the select is added to a score.
  std::optional<Seen> of_select(const Let& select, bool added,
                                std::optional<ValueId> score = std::nullopt) const {
    for (const bool flipped : {false, true}) {
      const ValueId shown = select.args[flipped ? 2 : 1], hidden = select.args[flipped ? 1 : 2];
      const Hides how = hides(hidden);
      if (how == Hides::kNo || (added && !is_zero(shown))) continue;
      const ValueId under = score ? *score : shown;
      std::vector<Condition> conditions;
      const bool all = conditions_of(select.args[0], flipped, conditions);
      for (const Condition& condition : conditions) {
        const auto count = keys_of(condition.holds);
        if (!count) continue;
        // Without an infinity the row needs one key that nothing hides: of one condition the first, of several the last
        // that this one shows, such as the row's own.
        const Expr seen = sym::ge(sym::substitute(*count, flash_.chain.row.var, 0), 1);
        const bool alone = all && conditions.size() == 1;
        const bool one_is_seen = alone || (facts_.holds(sym::le(*count, flash_.keys.extent)) &&
                                           holds_at(*count - 1, select.args[0], !flipped));
        const bool finite = one_is_seen && scale_of(under), known = facts_.holds(seen);
        Seen out{*count, condition.value, condition.truth, how == Hides::kInfinite, alone, under, {}};
        if (!out.weightless && finite && (known || assumes_)) {
          out.weightless = true;
          if (!known) out.given = seen;
        }
        return out;
      }
    }
    return std::nullopt;
  }

  // Conditions of indices that hold wherever `id` is true (or, `negated`, false); whether they are all there is.
  bool conditions_of(ValueId id, bool negated, std::vector<Condition>& out) const {
    const auto found = definitions_.find(id);
    if (found == definitions_.end()) return false;
    if (const auto* index = std::get_if<loop::IndexValue>(&found->second->node)) {
      out.push_back({negated ? sym::logical_not(index->expr) : index->expr, id, !negated});
      return true;
    }
    const auto* let = std::get_if<Let>(&found->second->node);
    if (!let) return false;
    if (let->op == ScalarOp::kNot) return conditions_of(let->args[0], !negated, out);
    if ((let->op == ScalarOp::kAnd && !negated) || (let->op == ScalarOp::kOr && negated)) {
      const bool first = conditions_of(let->args[0], negated, out);
      return conditions_of(let->args[1], negated, out) && first;
    }
    if (let->op != ScalarOp::kLe && let->op != ScalarOp::kLt) return false;
    const auto a = integer(let->args[0]), b = integer(let->args[1]);
    if (!a || !b) return false;
    const Expr condition = let->op == ScalarOp::kLe ? sym::le(*a, *b) : sym::lt(*a, *b);
    out.push_back({negated ? sym::logical_not(condition) : condition, id, !negated});
    return true;
  }

  // The condition surely is `truth` at the key, whatever memory holds.
  bool holds_at(Expr key, ValueId id, bool truth) const {
    const auto found = definitions_.find(id);
    if (found == definitions_.end()) return false;
    const auto sure = [&](Expr condition) {
      condition = sym::substitute(truth ? condition : sym::logical_not(condition), flash_.keys.var, key);
      return facts_.holds(sym::simplify(condition, facts_));
    };
    if (const auto* index = std::get_if<loop::IndexValue>(&found->second->node)) return sure(index->expr);
    const auto* let = std::get_if<Let>(&found->second->node);
    if (!let) return false;
    switch (let->op) {
      case ScalarOp::kNot: return holds_at(key, let->args[0], !truth);
      case ScalarOp::kAnd:
      case ScalarOp::kOr: {
        const bool first = holds_at(key, let->args[0], truth), second = holds_at(key, let->args[1], truth);
        return (let->op == ScalarOp::kAnd) == truth ? first && second : first || second;
      }
      case ScalarOp::kLe:
      case ScalarOp::kLt: {
        const auto a = integer(let->args[0]), b = integer(let->args[1]);
        return a && b && sure(let->op == ScalarOp::kLe ? sym::le(*a, *b) : sym::lt(*a, *b));
      }
      case ScalarOp::kEq: return truth && same_at(key, let->args[0], let->args[1]);
      case ScalarOp::kNe: return !truth && same_at(key, let->args[0], let->args[1]);
      default: return false;
    }
  }

  // Integers that are loaded from the same place.
  bool same_at(Expr key, ValueId x, ValueId y) const {
    if (x == y) return true;
    const Load* loads[2] = {};
    for (const ValueId id : {x, y}) {
      const auto found = definitions_.find(id);
      if (found == definitions_.end() || is_float(nest_.values[id.value].dtype)) return false;
      loads[id == y] = std::get_if<Load>(&found->second->node);
    }
    if (!loads[0] || !loads[1] || loads[0]->access.buffer != loads[1]->access.buffer ||
        !loads[0]->access.mask.is_const(1) || !loads[1]->access.mask.is_const(1))
      return false;
    const auto place = [&](const Load* load, size_t d) {
      return sym::substitute(load->access.index[d], flash_.keys.var, key);
    };
    for (size_t d = 0; d < loads[0]->access.index.size(); ++d)
      if (!facts_.holds(sym::eq(place(loads[0], d), place(loads[1], d)))) return false;
    return true;
  }

  std::optional<Expr> integer(ValueId id) const {
    const auto found = definitions_.find(id);
    if (found == definitions_.end() || nest_.values[id.value].dtype != DType::kI64) return std::nullopt;
    if (const auto* index = std::get_if<loop::IndexValue>(&found->second->node)) return index->expr;
    if (const auto* constant = std::get_if<loop::Constant>(&found->second->node))
      return Expr(constant->value.i);
    const auto* let = std::get_if<Let>(&found->second->node);
    if (!let || (let->op != ScalarOp::kAdd && let->op != ScalarOp::kSub)) return std::nullopt;
    const auto a = integer(let->args[0]), b = integer(let->args[1]);
    if (!a || !b) return std::nullopt;
    return let->op == ScalarOp::kAdd ? *a + *b : *a - *b;
  }

  // a <= b that bounds the key from above: how many keys it leaves.
  std::optional<Expr> keys_of(Expr condition) const {
    if (condition.op() != sym::Op::kLe && condition.op() != sym::Op::kLt) return std::nullopt;
    const Expr room = condition.arg(1) - condition.arg(0) - (condition.op() == sym::Op::kLt ? 1 : 0);
    const auto key = sym::linear_in(room, flash_.keys.var);
    if (!key || !key->coefficient.is_const(-1)) return std::nullopt;
    const auto row = sym::linear_in(key->rest, flash_.chain.row.var);
    const auto step = row ? sym::as_const(row->coefficient) : std::nullopt;
    if (!step || *step < 0 || sym::has_index(row->rest)) return std::nullopt;
    return key->rest + 1;
  }

  const Flash& flash_;
  const bool assumes_;
  const loop::Nest& nest_;
  const sym::Facts facts_;
  const Definitions definitions_;
};

// ---- factors ---------------------------------------------------------------------------------------------

// The load that a factor is, through a conversion to f32.
const Load* plain_load(const Factor& factor) {
  const Load* load = nullptr;
  for (const Stmt* stmt : factor.slice) {
    if (const auto* l = std::get_if<Load>(&stmt->node)) {
      if (load) return nullptr;
      load = l;
    } else {
      const auto* let = std::get_if<Let>(&stmt->node);
      if (!let || let->op != ScalarOp::kCast) return nullptr;
    }
  }
  return load && factor.slice.size() <= 2 && load->access.mask.is_const(1) ? load : nullptr;
}

std::optional<Flash::Operand> operand(const loop::Program& program, const Factor& factor, Expr line,
                                      Expr depth, const sym::Facts& facts) {
  Flash::Operand out{.load = plain_load(factor), .base = {}, .line = {}};
  if (!out.load) return std::nullopt;
  const auto form = linear_form(offset_of(program, out.load->access, facts), {line, depth});
  if (!form || !form->coefficients[1].is_const(1) || sym::has_index(form->coefficients[0]))
    return std::nullopt;
  out.base = form->rest;
  out.line = form->coefficients[0];
  return out;
}

int number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  STRIDEC_CHECK(error == std::errc() && end == text.data() + text.size(), text);
  return value;
}

}  // namespace

std::optional<Flash> match_attention(const loop::Program& program, const loop::Nest& nest, bool assumes,
                                     std::string* reason) {
  auto refuse = [&](std::string why) -> std::optional<Flash> {
    if (reason) *reason = std::move(why);
    return std::nullopt;
  };
  auto chain = match_chain(nest, reason);
  if (!chain) return std::nullopt;
  if (chain->parts.size() != 3 || !chain->parts[0].link || chain->parts[1].link || !chain->parts[2].link)
    return refuse("it is not a contraction, rows and a contraction");
  Flash flash;
  flash.chain = *std::move(chain);
  const Chain::Part &first = flash.chain.parts[0], &last = flash.chain.parts[2];
  flash.scores = *match_contraction(first.nest);
  flash.values = *match_contraction(last.nest);
  if (first.columns.size() != 1 || last.columns.size() != 1 || flash.scores.reduce->dims.size() != 1 ||
      flash.values.reduce->dims.size() != 1)
    return refuse("its columns or sums are not of one dim");
  flash.keys = first.columns[0];
  flash.columns = last.columns[0];
  const loop::Dim& summed = flash.values.reduce->dims[0];
  if (summed.extent != flash.keys.extent) return refuse("it sums over other keys than it has scores for");
  const LinkFactors b = *link_factors(flash.values, last.columns);
  const Load* shares = plain_load(flash.values.factors[b.rows]);
  if (!shares || shares->access.index != std::vector<Expr>{summed.var})
    return refuse("the second contraction reads more than a row");

  for (const Stmt& stmt : first.nest.body) {
    const auto* store = std::get_if<Store>(&stmt.node);
    if (!store) continue;
    if (flash.score || program[store->access.buffer].storage != loop::Storage::kLocal ||
        store->access.index != std::vector<Expr>{flash.keys.var} || !store->access.mask.is_const(1))
      return refuse("the first contraction stores more than a row of scores");
    flash.score = store;
  }
  if (!flash.score || !is_float(first.nest.values[flash.score->value.value].dtype))
    return refuse("the first contraction stores no scores");
  for (const Stmt& stmt : first.nest.body)
    if (const auto* load = std::get_if<Load>(&stmt.node))
      for (Expr index : load->access.index)
        flash.biased = flash.biased || sym::depends_on(index, flash.keys.var);
  Rows rows(program, flash);
  if (!rows.match(shares->access.buffer)) return refuse(rows.reason);
  const Mask mask(program, flash, assumes);
  flash.scale = mask.scale_of(flash.score->value);
  if (const auto seen = mask.find()) {
    if (seen->weightless && seen->alone) flash.scale = mask.scale_of(seen->score);
    flash.visible = seen->keys;
    flash.shown = {seen->value, seen->truth};
    // Rows whose weights are all alike see every key.
    flash.skips = seen->weightless && !flash.fixes;
    flash.given = seen->given;
  }
  if (flash.scale && !(*flash.scale > 1e-6 && *flash.scale < 1e6)) flash.scale.reset();
  return flash;
}

std::optional<Flash> match_flash(const loop::Program& program, const loop::Nest& nest, std::string* reason,
                                 bool assumes) {
  auto refuse = [&](std::string why) -> std::optional<Flash> {
    if (reason) *reason = std::move(why);
    return std::nullopt;
  };
  auto matched = match_attention(program, nest, assumes, reason);
  if (!matched) return std::nullopt;
  Flash& flash = *matched;
  const Chain::Part &first = flash.chain.parts[0], &last = flash.chain.parts[2];
  const loop::Dim &deep = flash.scores.reduce->dims[0], &summed = flash.values.reduce->dims[0];
  const auto depth = sym::as_const(deep.extent), width = sym::as_const(flash.columns.extent);
  if (!depth || !width || *depth < 1 || *width < 1 || *depth > kMostDepth || *width > kMostDepth)
    return refuse("its head size is not fixed, or over 256");
  flash.depth = *depth;
  flash.width = *width;

  const auto dtype = tensor_dtype(first.nest, flash.scores);
  if (!dtype || tensor_dtype(last.nest, flash.values) != dtype || flash.scores.dtype != DType::kF32 ||
      flash.values.dtype != DType::kF32)
    return refuse("its factors are no 16-bit floats of one kind");
  flash.dtype = *dtype;
  const LinkFactors a = *link_factors(flash.scores, first.columns),
                    b = *link_factors(flash.values, last.columns);
  const sym::Facts early = facts_in(program, first.nest, flash.scores),
                   late = facts_in(program, last.nest, flash.values);
  const auto q = operand(program, flash.scores.factors[a.rows], flash.chain.row.var, deep.var, early),
             k = operand(program, flash.scores.factors[a.columns], flash.keys.var, deep.var, early),
             v = operand(program, flash.values.factors[b.columns], summed.var, flash.columns.var, late);
  if (!q || !k || !v) return refuse("a factor is computed, or not contiguous along the head");
  flash.q = *q;
  flash.k = *k;
  flash.v = *v;
  return matched;
}

bool is_flash(const loop::Schedule& schedule) { return schedule.kernel.starts_with("flash."); }

loop::Schedule to_schedule(const FlashPlan& plan) {
  loop::Schedule schedule{.kernel = plan.wgmma ? "flash.wgmma" : "flash.mma",
                          .directives = {{"tile", {std::to_string(plan.rows), std::to_string(plan.keys)}}}};
  if (plan.split) schedule.directives.push_back({"split", {std::to_string(plan.split)}});
  return schedule;
}

FlashPlan to_flash_plan(const loop::Schedule& schedule) {
  FlashPlan plan{.wgmma = schedule.kernel == "flash.wgmma"};
  STRIDEC_CHECK(plan.wgmma || schedule.kernel == "flash.mma", schedule.kernel);
  for (const loop::Directive& directive : schedule.directives) {
    if (directive.name == "split" && directive.args.size() == 1) {
      plan.split = number(directive.args[0]);
      continue;
    }
    STRIDEC_CHECK(directive.name == "tile" && directive.args.size() == 2, directive.name);
    plan.rows = number(directive.args[0]);
    plan.keys = number(directive.args[1]);
  }
  return plan;
}

// Queries, and two stages of keys and of values. Lines are 16 bytes longer than they hold, so that eight of them lie in
// different banks. For wgmma: slabs with the copy engine's swizzle, and as many stages as fit.
int64_t shared_bytes(const FlashPlan& plan, const Flash& flash) {
  if (plan.wgmma)
    return int64_t{query_slots(plan, flash)} * plan.rows * 128 * slabs(flash.depth) +
           int64_t{stages(plan, flash)} * plan.keys * 128 * (slabs(flash.depth) + slabs(flash.width));
  const int64_t deep = (padded(flash.depth) + 8) * 2, wide = (padded(flash.width) + 8) * 2;
  const int64_t warp = plan.rows * deep + plan.stages() * plan.keys * (deep + wide);
  return plan.split ? kSplitWarps * warp : warp;  // each with its own
}

namespace {

int64_t stages_beside(const FlashPlan& plan, const Flash& flash, int64_t queries) {
  constexpr int64_t kShared = 224 << 10;
  const int64_t room = kShared - queries * plan.rows * 128 * slabs(flash.depth),
                stage = plan.keys * 128 * (slabs(flash.depth) + slabs(flash.width));
  return std::min<int64_t>(4, room / stage);
}

}  // namespace

int query_slots(const FlashPlan& plan, const Flash& flash) {
  return stages_beside(plan, flash, 2) >= 2 ? 2 : 1;
}

int stages(const FlashPlan& plan, const Flash& flash) {
  return static_cast<int>(stages_beside(plan, flash, query_slots(plan, flash)));
}

std::span<const FlashPlan> mma_tiles() {
  static constexpr FlashPlan kTiles[] = {{.rows = 128, .keys = 64},
                                         {.rows = 64, .keys = 64},
                                         {.rows = 64, .keys = 32},
                                         {.rows = 64, .keys = 16}};
  return kTiles;
}

std::optional<FlashPlan> mma_plan(const Flash& flash, int64_t shared, int most_rows) {
  for (const FlashPlan& plan : mma_tiles())
    if (plan.rows <= most_rows && shared_bytes(plan, flash) <= shared) return plan;
  return std::nullopt;
}

std::optional<FlashPlan> split_plan(const Flash& flash, int64_t shared, int split) {
  for (int keys : {32, 16}) {
    const FlashPlan plan{.rows = 16, .keys = keys, .split = split};
    if (shared_bytes(plan, flash) <= shared) return plan;
  }
  return std::nullopt;
}

}  // namespace stridec::kernels

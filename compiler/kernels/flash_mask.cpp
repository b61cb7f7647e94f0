#include "compiler/kernels/flash_mask.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "compiler/kernels/definitions.h"

namespace stridec::kernels {
namespace {

using loop::Let;
using loop::Load;
using loop::ScalarOp;
using loop::ValueId;
using sym::Expr;

// Finds an index mask among the statements of the scores.
class Mask {
 public:
  Mask(const loop::Program& program, const Flash& flash, bool assumes)
      : flash_(flash),
        assumes_(assumes),
        nest_(flash.scores_nest()),
        facts_(facts_in(program, nest_, flash.scores())),
        definitions_(definitions_of(nest_.body)) {}

  struct Seen {
    Expr keys;
    std::vector<std::pair<ValueId, bool>> shown;
    bool infinite;  // the hiding value is -infinity
    bool weightless;
    bool alone;                 // the mask is the score's whole condition
    ValueId score;              // the score under the mask
    std::optional<Expr> given;  // the condition under which `weightless` holds
    bool asks = false;          // `weightless` depends on memory
    std::optional<std::pair<ValueId, bool>> others = {};
  };
  std::optional<Seen> find() const { return of_score(flash_.score->value); }

  // The factor if the value is the sum times a constant.
  std::optional<double> scale_of(ValueId id) const {
    if (id == flash_.scores().reduce->results[0]) return 1.0;
    const Let* let = let_of(definitions_, id);
    if (!let) return std::nullopt;
    if (is_cast(let) && is_float(nest_.values[id.value].dtype)) return scale_of(let->args[0]);
    if (let->op == ScalarOp::kAdd)  // without a mask ONNX's Attention adds zeros
      return is_zero(let->args[1]) ? scale_of(let->args[0]) : std::nullopt;
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
  // Whether a value hides a key: no weight is left next to a visible score. The lowest finite value of the
  // dtype does so only if a visible score is certain to exist.
  enum class Hides { kNo, kLowest, kInfinite };
  Hides hides(ValueId id) const {
    const auto constant = constant_of(definitions_, skip_casts(definitions_, id));
    if (!constant || !is_float(constant->dtype) || constant->f > -65504) return Hides::kNo;
    return std::isinf(constant->f) ? Hides::kInfinite : Hides::kLowest;
  }
  bool is_zero(ValueId id) const {
    const auto constant = constant_of(definitions_, skip_casts(definitions_, id));
    return constant && constant->f == 0 && constant->i == 0;
  }

  std::optional<Seen> of_score(ValueId id) const {
    const Let* let = let_of(definitions_, id);
    if (!let) return std::nullopt;
    if (is_cast(let)) return of_score(let->args[0]);
    if (let->op == ScalarOp::kSelect) return of_select(*let, false);
    if (let->op != ScalarOp::kAdd) return std::nullopt;
    for (int side : {0, 1}) {
      const ValueId bias = skip_casts(definitions_, let->args[static_cast<size_t>(side)]);
      const Let* select = let_of(definitions_, bias);
      if (!select) continue;
      const ValueId score = let->args[static_cast<size_t>(1 - side)];
      if (select->op == ScalarOp::kSelect) {
        if (auto found = of_select(*select, true, score)) return found;
      } else if (select->op == ScalarOp::kAdd) {
        // Another addend leaves an infinity unchanged, but moves a finite value anywhere.
        if (auto found = of_score(bias); found && found->infinite) {
          found->alone = false;
          return found;
        }
      }
    }
    return std::nullopt;
  }

  // visible ? x : lowest, or the branches exchanged; `added`: x is 0, and the select is added to a score.
  std::optional<Seen> of_select(const Let& select, bool added,
                                std::optional<ValueId> score = std::nullopt) const {
    for (const bool flipped : {false, true}) {
      const ValueId shown = select.args[flipped ? 2 : 1], hidden = select.args[flipped ? 1 : 2];
      const Hides how = hides(hidden);
      if (how == Hides::kNo || (added && !is_zero(shown))) continue;
      const ValueId under = score ? *score : shown;
      std::vector<Condition> conditions;
      const bool all = conditions_of(select.args[0], flipped, conditions);
      std::optional<Expr> count;
      std::vector<std::pair<ValueId, bool>> shown_by;
      for (const Condition& condition : conditions)
        if (const auto keys = keys_of(condition.holds)) {
          count = count ? sym::min(*count, *keys) : *keys;
          shown_by.push_back({condition.value, condition.truth});
        }
      if (!count) continue;
      const bool alone = all && shown_by.size() == conditions.size();
      Seen out{*count, std::move(shown_by), how == Hides::kInfinite, how == Hides::kInfinite, alone, under,
               {}};
      if (out.weightless) return out;
      // Without an infinity the row needs one key that nothing hides: the first, or the last one that this
      // mask shows, such as the row's own key.
      const bool fixed = lengths_in(*count).empty();
      const Expr seen = sym::ge(sym::substitute(*count, flash_.chain.row.var, 0), 1);
      const bool one_is_seen = out.alone || (fixed && facts_.holds(sym::le(*count, flash_.keys.extent)) &&
                                             holds_at(*count - 1, select.args[0], !flipped));
      const bool finite = fixed && one_is_seen && scale_of(under), known = finite && facts_.holds(seen);
      if (finite && (known || assumes_)) {
        out.weightless = true;
        if (!known) out.given = seen;
      } else if ((!fixed || !all) && scale_of(under) && others_of(select.args[0], flipped)) {
        out.weightless = out.asks = true;
        if (!out.alone) out.others = {select.args[0], !flipped};
        out.alone = false;  // a row that sees no key weighs all of them
      }
      return out;
    }
    return std::nullopt;
  }

  // Whether the conditions that hold wherever `id` is true (or, if `negated`, false) are bounds on keys and
  // conditions that do not depend on the row.
  bool others_of(ValueId id, bool negated) const {
    std::vector<Condition> own;
    if (conditions_of(id, negated, own)) {
      return std::all_of(own.begin(), own.end(), [&](const Condition& c) { return keys_of(c.holds); });
    }
    if (const Let* let = let_of(definitions_, id)) {
      if (let->op == ScalarOp::kNot) return others_of(let->args[0], !negated);
      if ((let->op == ScalarOp::kAnd && !negated) || (let->op == ScalarOp::kOr && negated))
        return others_of(let->args[0], negated) && others_of(let->args[1], negated);
    }
    return is_free_of(id, {flash_.chain.row.var});
  }

  // Whether the computation of the value uses none of these variables and no loops.
  bool is_free_of(ValueId id, std::initializer_list<Expr> vars) const {
    const auto found = definitions_.find(id);
    if (found == definitions_.end() || loop::body_of(*found->second)) return false;
    bool free = true;
    loop::for_each_expr(*found->second, [&](Expr e) {
      for (Expr var : vars) free = free && !sym::depends_on(e, var);
    });
    loop::for_each_use(*found->second, [&](ValueId used) { free = free && is_free_of(used, vars); });
    return free;
  }

 public:
  std::vector<std::pair<Expr, ValueId>> lengths_in(Expr keys) const {
    std::vector<std::pair<Expr, ValueId>> out;
    for (const auto& length : lengths_)
      if (sym::depends_on(keys, length.first)) out.push_back(length);
    return out;
  }

 private:
  // Collects conditions on indices that hold wherever `id` is true (or, if `negated`, false). Returns whether
  // they are equivalent to it.
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

  // Whether the condition equals `truth` at the key whatever memory holds.
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

  // Whether both are integers loaded from the same address at the key.
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
    if (is_free_of(id, {flash_.chain.row.var, flash_.keys.var})) return length(id);
    const auto* let = std::get_if<Let>(&found->second->node);
    if (!let || (let->op != ScalarOp::kAdd && let->op != ScalarOp::kSub)) return std::nullopt;
    const auto a = integer(let->args[0]), b = integer(let->args[1]);
    if (!a || !b) return std::nullopt;
    return let->op == ScalarOp::kAdd ? *a + *b : *a - *b;
  }

  Expr length(ValueId id) const {
    for (const auto& [var, value] : lengths_)
      if (value == id) return var;
    return lengths_.emplace_back(sym::var("%length" + std::to_string(lengths_.size())), id).first;
  }

  // For a condition a <= b or a < b that bounds the key from above: the number of keys that satisfy it.
  std::optional<Expr> keys_of(Expr condition) const {
    if (condition.op() != sym::Op::kLe && condition.op() != sym::Op::kLt) return std::nullopt;
    const Expr room = condition.arg(1) - condition.arg(0) - (condition.op() == sym::Op::kLt ? 1 : 0);
    const auto key = sym::linear_in(room, flash_.keys.var);
    if (!key || !key->coefficient.is_const(-1)) return std::nullopt;
    const auto row = sym::linear_in(key->rest, flash_.chain.row.var);
    const auto step = row ? sym::as_const(row->coefficient) : std::nullopt;
    if (!step || *step < 0) return std::nullopt;
    Expr rest = row->rest;
    for (const auto& length : lengths_) rest = sym::substitute(rest, length.first, 0);
    if (sym::has_index(rest)) return std::nullopt;
    return key->rest + 1;
  }

  const Flash& flash_;
  const bool assumes_;
  const loop::Nest& nest_;
  const sym::Facts facts_;
  const Definitions definitions_;
  mutable std::vector<std::pair<Expr, ValueId>> lengths_;  // filled by the queries
};

// Whether rows of `fixed` weights have weight 0.
bool fixes_at_zero(const Flash& flash) {
  const auto value =
      flash.fixed ? constant_of(definitions_of(flash.rows_nest().body), *flash.fixed) : std::nullopt;
  return value && value->f == 0;
}

}  // namespace

void find_mask(const loop::Program& program, Flash& flash, bool assumes) {
  const Mask mask(program, flash, assumes);
  flash.scale = mask.scale_of(flash.score->value);
  if (const auto seen = mask.find()) {
    if (seen->weightless && seen->alone) flash.scale = mask.scale_of(seen->score);
    flash.visible = seen->keys;
    flash.shown = seen->shown;
    flash.lengths = mask.lengths_in(seen->keys);
    // Rows whose weights are all equal see every key, unless these weights are 0.
    flash.skips = seen->weightless && (!flash.fixes || fixes_at_zero(flash));
    flash.given = seen->given;
    flash.asks = flash.skips && seen->asks;
    if (flash.asks) flash.others = seen->others;
  }
  if (flash.scale && !(*flash.scale > 1e-6 && *flash.scale < 1e6)) flash.scale.reset();
}

}  // namespace stridec::kernels

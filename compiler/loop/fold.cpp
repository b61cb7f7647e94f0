// Folding of scalar statements: constants, identities that hold for every value (including NaN, -0 and
// infinities), and conversions that cancel.
#include <cmath>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/base/numeric.h"
#include "compiler/loop/monotonicity.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/scalar_math.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {
namespace {

constexpr int kDeepest = 6;  // expressions that value_unless() looks into

class Folder {
 public:
  explicit Folder(Nest& nest) : nest_(nest), definitions_(nest.values.size()) {}

  void block(Block& stmts) {
    Block out;
    for (Stmt& s : stmts) {
      for_each_use(s, [&](ValueId& v) { v = resolved(v); });
      if (auto* index = std::get_if<IndexValue>(&s.node); index && index->expr.is_const()) {
        bytecode::Cell from{.i = index->expr.value()}, to;
        DType dtype = type_of(index->result);
        bytecode::convert(DType::kI64, dtype, false, &to, &from, 1);
        s = {Constant{index->result, bytecode::to_scalar(dtype, to)}};
      }
      if (auto* let = std::get_if<Let>(&s.node)) {
        if (const auto square = square_of(*let)) out.push_back(*square);
        into_select(*let, out);
        of_two_selects(*let, out);
        fold(s, *let);
      }
      for_each_result(std::as_const(s), [&](ValueId v) {
        bool scalar = std::holds_alternative<Let>(s.node) || std::holds_alternative<Constant>(s.node) ||
                      std::holds_alternative<IndexValue>(s.node);
        if (scalar) definitions_[v.value] = s;  // a copy: the block may be reallocated
      });
      if (const auto* load = std::get_if<Load>(&s.node)) loads_.emplace(load->result.value, *load);
      if (Block* body = body_of(s)) {
        block(*body);
        for_each_use(s, [&](ValueId& v) { v = resolved(v); });
        if (auto* reduce = std::get_if<Reduce>(&s.node))
          if (const auto let = at_extreme(*reduce, out)) s = {*let};
      }
      out.push_back(std::move(s));
    }
    stmts = std::move(out);
  }

 private:
  DType type_of(ValueId v) const { return nest_.values[v.value].dtype; }
  ValueId resolved(ValueId v) const {
    for (auto it = same_.find(v.value); it != same_.end(); it = same_.find(v.value)) v = it->second;
    return v;
  }
  template <class T>
  const T* definition(ValueId v) const {
    const std::optional<Stmt>& d = definitions_[v.value];
    return d ? std::get_if<T>(&d->node) : nullptr;
  }
  const Scalar* constant(ValueId v) const {
    const Constant* c = definition<Constant>(v);
    return c ? &c->value : nullptr;
  }
  static bool is(const Scalar* s, double value) {
    if (!s) return false;
    if (is_float(s->dtype)) return s->f == value && !(value == 0 && std::signbit(s->f));
    return s->i == static_cast<int64_t>(value);
  }

  void fold(Stmt& s, Let let) {
    std::vector<const Scalar*> known;
    bool all = true;
    for (ValueId a : let.args) {
      known.push_back(constant(a));
      all = all && known.back();
    }
    if (all) {
      s = {Constant{let.result, evaluate(let, known)}};
      return;
    }
    if (std::optional<ValueId> v = identity_of(let, known)) {
      same_[let.result.value] = *v;
      return;  // dead code from here on
    }
    if (let.op == ScalarOp::kCast) cast(s, let);
    choice(s, let, known);
    compare(s, let);
  }

  // Expands small powers into multiplications: x*x for 2; exponents 3 and 4 put x*x into a statement before
  // the let. Rewrites the let to the final multiplication.
  std::optional<Stmt> square_of(Let& let) {
    if (let.op != ScalarOp::kPow || is_storage_float(type_of(let.result))) return std::nullopt;
    const Scalar* exponent = constant(let.args[1]);
    const ValueId x = let.args[0];
    if (is(exponent, 2)) let = {let.result, ScalarOp::kMul, {x, x}};
    const bool cube = is(exponent, 3);
    if (!cube && !is(exponent, 4)) return std::nullopt;
    const ValueId square = add_value(nest_, type_of(let.result), let.result);
    definitions_.emplace_back();  // invalidates `exponent`
    let = {let.result, ScalarOp::kMul, {square, cube ? x : square}};
    return Stmt{Let{square, ScalarOp::kMul, {x, x}}};
  }

  // The maximum or minimum of a value that is monotonic along each dim: its value at the first or last point,
  // if there is a point.
  std::optional<Let> at_extreme(Reduce& reduce, Block& out) {
    const bool greatest = reduce.combine == Combine::kMax;
    if ((!greatest && reduce.combine != Combine::kMin) || reduce.results.size() != 1) return std::nullopt;
    for (const Stmt& s : reduce.body)  // loads might be out of bounds if there is no point
      if (!std::holds_alternative<Let>(s.node) && !std::holds_alternative<Constant>(s.node) &&
          !std::holds_alternative<IndexValue>(s.node))
        return std::nullopt;
    const auto lookup = [&](ValueId v) { return definitions_[v.value] ? &*definitions_[v.value] : nullptr; };
    sym::Substitution places;
    sym::Expr points = 1;
    for (const Dim& dim : reduce.dims) {
      const auto trend = monotonicity_of(nest_, reduce.yields[0], dim.var, lookup);
      if (!trend || (trend->rises && trend->falls)) return std::nullopt;
      places[dim.var] = (greatest ? trend->rises : trend->falls) ? dim.extent - 1 : sym::Expr(0);
      points = points * dim.extent;
    }
    substitute(reduce.body, places);
    block(reduce.body);
    for (Stmt& s : reduce.body) out.push_back(std::move(s));
    const ValueId result = reduce.results[0], there = resolved(reduce.yields[0]);
    const auto add = [&](DType of, auto&& statement) {
      const ValueId made = add_value(nest_, of, result);
      out.push_back(statement(made));
      definitions_.emplace_back(out.back());
      return made;
    };
    const ValueId any =
        add(DType::kBool, [&](ValueId made) { return Stmt{IndexValue{made, sym::ge(points, 1)}}; });
    const ValueId nothing = add(type_of(result), [&](ValueId made) {
      return Stmt{Constant{made, identity(reduce.combine, type_of(result))}};
    });
    const Let let{result, ScalarOp::kSelect, {any, there, nothing}};
    definitions_[result.value] = Stmt{let};
    return let;
  }

  // Whether the value is a float constant, or selects among such nested at most `choices` deep.
  bool chooses(ValueId v, int choices) const {
    if (const Scalar* known = constant(v)) return is_float(known->dtype);
    const Let* made = definition<Let>(v);
    return choices > 0 && made && made->op == ScalarOp::kSelect && chooses(made->args[1], choices - 1) &&
           chooses(made->args[2], choices - 1);
  }

  //   f(c ? a : b, d)   ->   c ? f(a, d) : f(b, d)
  //
  // for float constants a, b and d; a and b may be such selects too. Masks have this form: biases are added
  // to them, they are cast and compared. The let becomes the select, placed after its two values.
  void into_select(Let& let, Block& out) {
    constexpr int kChoices = 2;
    if (let.op == ScalarOp::kSelect || !(is_float(type_of(let.result)) || is_bool(type_of(let.result))))
      return;
    std::optional<size_t> at;
    for (size_t i = 0; i < let.args.size(); ++i) {
      const bool known = constant(let.args[i]);
      if (!chooses(let.args[i], known || at ? 0 : kChoices)) return;
      if (!known) at = i;
    }
    if (!at) return;
    const Let select = *definition<Let>(let.args[*at]);
    ValueId made[2];
    for (size_t i : {0, 1}) {
      Let of = let;
      of.args[*at] = select.args[1 + i];
      of.result = made[i] = add_value(nest_, type_of(let.result), let.result);
      definitions_.emplace_back();
      std::vector<const Scalar*> known;
      for (ValueId arg : of.args) known.push_back(constant(arg));
      Stmt s{of};
      if (known[*at]) {
        s = {Constant{of.result, evaluate(of, known)}};
      } else {
        into_select(of, out);
        s = {of};
        fold(s, of);
      }
      made[i] = resolved(made[i]);
      definitions_[of.result.value] = s;
      out.push_back(std::move(s));
    }
    let = {let.result, ScalarOp::kSelect, {select.args[0], made[0], made[1]}};
  }

  //   f(c ? a : b, d ? x : y)   ->   c && d ? f(a, x) : f(b, y)
  //
  // for constants, if all results but f(a, x) are equal; also with c, d or both negated. An example is the
  // sum of two masks with values 0 and -inf.
  void of_two_selects(Let& let, Block& out) {
    if (let.args.size() != 2 || let.op == ScalarOp::kSelect) return;
    if (!is_float(type_of(let.result)) && !is_bool(type_of(let.result))) return;
    const Let* selects[2];
    for (size_t i : {0, 1}) {
      selects[i] = definition<Let>(let.args[i]);
      if (!selects[i] || selects[i]->op != ScalarOp::kSelect || !constant(selects[i]->args[1]) ||
          !constant(selects[i]->args[2]))
        return;
    }
    Scalar results[4];  // indexed by 2 * !c + !d
    const auto same = [&](int i, int j) { return is_same(results[i], results[j]); };
    for (size_t i = 0; i < 4; ++i)
      results[i] =
          evaluate(let, {constant(selects[0]->args[1 + i / 2]), constant(selects[1]->args[1 + i % 2])});
    int apart = -1;
    for (int i = 0; i < 4 && apart < 0; ++i)
      if (same(i ^ 1, i ^ 2) && same(i ^ 1, i ^ 3) && !same(i, i ^ 1)) apart = i;
    if (apart < 0) return;
    const auto add = [&](DType of, auto&& statement) {
      const ValueId made = add_value(nest_, of, let.result);
      out.push_back(statement(made));
      definitions_.emplace_back(out.back());
      return made;
    };
    const DType dtype = type_of(let.result);
    // The selects may be reallocated as values are added.
    ValueId conditions[2] = {selects[0]->args[0], selects[1]->args[0]};
    for (int i : {0, 1})
      if (apart >> (1 - i) & 1)
        conditions[i] = add(DType::kBool, [&](ValueId made) { return negated(made, conditions[i]); });
    const ValueId both = add(DType::kBool, [&](ValueId made) {
      return Stmt{Let{made, ScalarOp::kAnd, {conditions[0], conditions[1]}}};
    });
    const ValueId one = add(dtype, [&](ValueId made) { return Stmt{Constant{made, results[apart]}}; }),
                  others = add(dtype, [&](ValueId made) { return Stmt{Constant{made, results[apart ^ 1]}}; });
    let = {let.result, ScalarOp::kSelect, {both, one, others}};
  }

  static bool is_same(const Scalar& a, const Scalar& b) {
    if (!is_float(a.dtype)) return a.i == b.i;
    return (std::isnan(a.f) && std::isnan(b.f)) || (a.f == b.f && std::signbit(a.f) == std::signbit(b.f));
  }

  Stmt negated(ValueId made, ValueId condition) const {
    if (const auto* index = definition<IndexValue>(condition))
      return {IndexValue{made, sym::logical_not(index->expr)}};
    const Let* let = definition<Let>(condition);
    const bool orders = let && (let->op == ScalarOp::kLt || let->op == ScalarOp::kLe);
    if (orders && !is_float(type_of(let->args[0])))
      return {
          Let{made, let->op == ScalarOp::kLt ? ScalarOp::kLe : ScalarOp::kLt, {let->args[1], let->args[0]}}};
    return {Let{made, ScalarOp::kNot, {condition}}};
  }

  // Selects between conditions become conditions.
  void choice(Stmt& s, const Let& let, const std::vector<const Scalar*>& known) {
    if (let.op != ScalarOp::kSelect || !is_bool(type_of(let.result))) return;
    const ValueId condition = let.args[0];
    if (is(known[1], 1) && is(known[2], 0))
      same_[let.result.value] = condition;
    else if (is(known[1], 0) && is(known[2], 1))
      s = {Let{let.result, ScalarOp::kNot, {condition}}};
    else if (is(known[2], 0))
      s = {Let{let.result, ScalarOp::kAnd, {condition, let.args[1]}}};
    else if (is(known[1], 1))
      s = {Let{let.result, ScalarOp::kOr, {condition, let.args[2]}}};
  }

  Scalar evaluate(const Let& let, const std::vector<const Scalar*>& args) const {
    bytecode::Cell cells[3], out;
    for (size_t i = 0; i < 3; ++i) cells[i] = bytecode::to_cell(*args[std::min(i, args.size() - 1)]);
    DType from = args.back()->dtype, to = type_of(let.result);
    if (let.op == ScalarOp::kCast || let.op == ScalarOp::kCastSat)
      bytecode::convert(from, to, let.op == ScalarOp::kCastSat, &out, cells, 1);
    else if (let.op == ScalarOp::kBitcast)
      bytecode::bitcast(from, to, &out, cells, 1);
    else
      bytecode::scalar_op(let.op, from, &out, &cells[0], &cells[1], &cells[2], 1);
    return bytecode::to_scalar(to, out);
  }

  // The argument that the result is equal to, if there is one.
  std::optional<ValueId> identity_of(const Let& let, const std::vector<const Scalar*>& known) const {
    bool integer = !is_float(type_of(let.args.back()));
    switch (let.op) {
      case ScalarOp::kCast:
      case ScalarOp::kCastSat:
        if (type_of(let.args[0]) == type_of(let.result)) return let.args[0];
        break;
      case ScalarOp::kAdd:  // x + 0.0 converts -0 to 0
        if (integer && is(known[0], 0)) return let.args[1];
        if (integer && is(known[1], 0)) return let.args[0];
        if (known[1] && known[1]->f == 0 && !integer && std::signbit(known[1]->f)) return let.args[0];
        break;
      case ScalarOp::kSub:
        if (is(known[1], 0)) return let.args[0];
        break;
      case ScalarOp::kMul:
        if (is(known[0], 1)) return let.args[1];
        if (is(known[1], 1)) return let.args[0];
        break;
      case ScalarOp::kDiv:
        if (is(known[1], 1)) return let.args[0];
        break;
      case ScalarOp::kMin:
      case ScalarOp::kMax:
        if (let.args[0] == let.args[1]) return let.args[0];
        break;
      case ScalarOp::kAnd:
        if (is(known[0], 1)) return let.args[1];
        if (is(known[1], 1) || is(known[0], 0)) return let.args[0];
        if (is(known[1], 0)) return let.args[1];
        break;
      case ScalarOp::kOr:
        if (is(known[0], 0)) return let.args[1];
        if (is(known[1], 0) || is(known[0], 1)) return let.args[0];
        if (is(known[1], 1)) return let.args[1];
        break;
      case ScalarOp::kSelect:
        if (known[0]) return let.args[known[0]->i ? 1 : 2];
        if (let.args[1] == let.args[2]) return let.args[1];
        if (known[2] && is_fill(let.args[1], let.args[0], *known[2])) return let.args[1];
        break;
      default: break;
    }
    return std::nullopt;
  }

  // Whether x is `otherwise` where the condition is false: all loads in it have the condition as a mask.
  bool is_fill(ValueId x, ValueId condition, const Scalar& otherwise) const {
    const IndexValue* index = definition<IndexValue>(condition);
    const auto fill = index ? value_unless(index->expr, x, kDeepest) : std::nullopt;
    return fill && *fill == otherwise && std::signbit(fill->f) == std::signbit(otherwise.f);
  }

  // The value where the condition is false, if it is a constant then.
  std::optional<Scalar> value_unless(sym::Expr condition, ValueId x, int depth) const {
    if (const Scalar* known = constant(x)) return *known;
    if (const auto load = loads_.find(x.value); load != loads_.end())
      return load->second.access.mask == condition ? std::optional(load->second.fill) : std::nullopt;
    const Let* let = definition<Let>(x);
    if (!let || depth == 0) return std::nullopt;
    std::vector<Scalar> values;
    for (const ValueId arg : let->args) {
      const auto value = value_unless(condition, arg, depth - 1);
      if (!value) return std::nullopt;
      values.push_back(*value);
    }
    std::vector<const Scalar*> known;
    for (const Scalar& value : values) known.push_back(&value);
    return evaluate(*let, known);
  }

  // A conversion that follows a lossless one reads the original value.
  void cast(Stmt& s, Let let) {
    ValueId from = let.args[0];
    if (const IndexValue* index = definition<IndexValue>(from); index && type_of(from) == DType::kI64) {
      s = {IndexValue{let.result, index->expr}};
      return;
    }
    const Let* inner = definition<Let>(from);
    if (!inner || inner->op != ScalarOp::kCast || !holds_all(type_of(from), type_of(inner->args[0]))) return;
    if (type_of(inner->args[0]) == type_of(let.result)) {
      same_[let.result.value] = inner->args[0];
      return;
    }
    s = {Let{let.result, ScalarOp::kCast, {inner->args[0]}}};
  }

  // Comparisons of indices with indices and constants become conditions; their sums and differences become
  // indices.
  void compare(Stmt& s, const Let& let) {
    auto index = [&](ValueId v) -> std::optional<sym::Expr> {
      if (type_of(v) != DType::kI64) return std::nullopt;
      if (const Scalar* c = constant(v)) return sym::Expr(c->i);
      if (const IndexValue* i = definition<IndexValue>(v)) return i->expr;
      return std::nullopt;
    };
    if (let.args.size() != 2) return;
    std::optional<sym::Expr> a = index(let.args[0]), b = index(let.args[1]);
    if (!a || !b) return;
    switch (let.op) {
      case ScalarOp::kAdd: s = {IndexValue{let.result, *a + *b}}; break;
      case ScalarOp::kSub: s = {IndexValue{let.result, *a - *b}}; break;
      case ScalarOp::kEq: s = {IndexValue{let.result, sym::eq(*a, *b)}}; break;
      case ScalarOp::kNe: s = {IndexValue{let.result, sym::ne(*a, *b)}}; break;
      case ScalarOp::kLt: s = {IndexValue{let.result, sym::lt(*a, *b)}}; break;
      case ScalarOp::kLe: s = {IndexValue{let.result, sym::le(*a, *b)}}; break;
      default: break;
    }
  }

  Nest& nest_;
  std::vector<std::optional<Stmt>> definitions_;  // of lets, constants and index values
  std::unordered_map<int32_t, Load> loads_;
  std::unordered_map<int32_t, ValueId> same_;  // values that equal another value
};

}  // namespace

void fold(Nest& nest) { Folder(nest).block(nest.body); }

}  // namespace stridec::loop

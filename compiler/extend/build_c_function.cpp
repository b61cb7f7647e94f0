// Runs a function of one point on values of the graph: branches become selects, and loops are unrolled.
#include <algorithm>
#include <optional>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/c_function.h"
#include "compiler/extend/c_index.h"
#include "compiler/extend/c_loops.h"
#include "compiler/extend/evaluate.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/term.h"
#include "compiler/sym/guard.h"
#include "compiler/sym/text.h"

namespace stridec::extend {
namespace {

constexpr const char* kOpenLoop =
    "the condition of a loop depends on data, or on an index of the result: let it run over a size, with an "
    "'if' in it";

using graph::Builder;
using graph::OpKind;
using ops::Term;
using Kind = CExpression::Kind;

constexpr int kMostSteps = 100000;  // of unrolled loops
constexpr int kMostPieces = 8;      // each is a copy of the function

struct State {
  std::map<std::string, CValue, std::less<>> variables;
  std::map<std::string, DType, std::less<>> types;   // of the variables
  std::map<std::string, size_t, std::less<>> depth;  // how many reductions were open where they were declared
  std::optional<Term> result;
  std::optional<Term> returned;  // where the function has returned; none: nowhere
  bool done = false;             // it has returned everywhere
};

// A range of the indices, and where it may be split in two.
struct CPiece {
  CPlace place;
  std::vector<sym::Expr> begins;  // by dim of the place, whose shape has the extents
};
struct CSplit {
  int index = 0;
  sym::Expr at;  // from the begin of the piece
};

class Runner {
 public:
  Runner(Builder& builder, const CFunction& function,
         const std::map<std::string, graph::ValueId, std::less<>>& values,
         const std::map<std::string, Attr, std::less<>>& attributes, const CPiece& piece, bool may_split)
      : b_(builder),
        function_(function),
        values_(values),
        attributes_(attributes),
        indices_(piece.place.indices),
        begins_(piece.begins),
        may_split_(may_split),
        ranges_{.shape = piece.place.shape} {}

  std::map<std::string, graph::ValueId> run() {
    std::map<std::string, graph::ValueId> out;
    for (const CParameter& each : function_.parameters) {
      if (each.pointer) {
        state_.types[cat("*", each.name)] = dtype_of(each.type, each.at);
        state_.depth[cat("*", each.name)] = 0;
        continue;
      }
      if (each.indices > 0) {
        arrays_.emplace(each.name, &each);
        continue;
      }
      state_.types[each.name] = dtype_of(each.type, each.at);
      state_.depth[each.name] = 0;
      assign(each.name, state_.types[each.name], parameter(each), true, each.at);
    }
    run(function_.body);
    for (const CParameter& each : function_.parameters) {
      if (!each.pointer) continue;
      const auto found = state_.variables.find(cat("*", each.name));
      if (found == state_.variables.end())
        refuse(each.at, cat("output '", each.name, "' is not set on every path"));
      out.emplace(each.name, found->second.term.id());
    }
    if (function_.result == "void") return out;
    if (!state_.result || !state_.done) refuse({1, 1}, "the function does not return on every path");
    out.emplace("", state_.result->id());
    return out;
  }

  // After run(): where two pieces read views, and one reads single elements.
  const std::optional<CSplit>& split() const { return split_; }

 private:
  [[noreturn]] void refuse(Position at, const std::string& what) const {
    fail(ErrorKind::kDoesNotFit, "does-not-fit",
         cat(function_.place, ":", at.line, ":", at.column, ": ", what));
  }

  DType dtype_of(const std::string& type, Position at) const {
    if (const auto known = c_dtype(type)) return *known;
    const auto bound = attributes_.find(type);
    if (bound != attributes_.end())
      if (const auto* dtype = std::get_if<DType>(&bound->second)) return *dtype;
    refuse(at, cat("'", type, "' is not a type"));
  }

  CValue parameter(const CParameter& each) const { return {scalar(each), false, output_index(each.name)}; }

  std::optional<Affine> output_index(const std::string& name) const {
    const auto found = std::ranges::find(indices_, name);
    if (found == indices_.end()) return std::nullopt;
    const auto dim = found - indices_.begin();
    return Affine{.index = static_cast<int>(dim), .offset = begins_[static_cast<size_t>(dim)]};
  }

  Term scalar(const CParameter& each) const {
    const auto rank = static_cast<int64_t>(ranges_.shape.size());
    if (const auto index = output_index(each.name)) {
      const Term local =
          ops::positions_along(b_, ranges_.shape[static_cast<size_t>(index->index)], index->index, rank);
      return index->offset.is_const(0) ? local : local + ops::size_as(b_, DType::kI64, index->offset);
    }
    if (const auto value = values_.find(each.name); value != values_.end()) {
      if (!indices_.empty() && b_.rank(value->second) > 0)
        refuse(each.at, cat("'", each.name, "' is a tensor: write ", each.name, "[n] and read its elements"));
      return {b_, value->second};
    }
    const auto bound = attributes_.find(each.name);
    const DType dtype = dtype_of(each.type, each.at);
    if (bound != attributes_.end()) {
      if (const auto* d = std::get_if<double>(&bound->second))
        return ops::number(b_, is_float(dtype) ? dtype : DType::kF64, *d);
      if (const auto* e = std::get_if<sym::Expr>(&bound->second))
        return is_float(dtype) ? ops::size_as(b_, dtype, *e) : Term(b_, b_.elements({*e}, {}, DType::kI64));
    }
    refuse(each.at, cat("parameter '", each.name, "' is not a number"));
  }

  // A condition that is known when compiling.
  std::optional<bool> known(Term condition) const {
    const auto elements = b_.known(condition.id());
    if (!elements || elements->size() != 1 || !elements->front().is_const()) return std::nullopt;
    return elements->front().value() != 0;
  }

  // ---- statements
  void run(const std::vector<CStatement>& list) {
    for (const CStatement& each : list)
      if (!state_.done) run(each);
  }

  void run(const CStatement& each) {
    switch (each.kind) {
      case CStatement::Kind::kBlock: return scoped([&] { run(each.body); });
      case CStatement::Kind::kIf: return branch(each);
      case CStatement::Kind::kFor: return scoped([&] { loop(each); });
      case CStatement::Kind::kReturn: return leave(each);
      case CStatement::Kind::kAssign: {
        const auto type = state_.types.find(each.name);
        if (type == state_.types.end()) refuse(each.at, cat("'", each.name, "' is not declared"));
        return assign(each.name, type->second, value(each.value[0]), false, each.at);
      }
      case CStatement::Kind::kDeclare: break;
    }
    const DType dtype = dtype_of(each.type, each.at);
    if (!declared_.empty() && std::ranges::count(declared_.back(), each.name) > 0)
      refuse(each.at, cat("'", each.name, "' is declared twice"));
    if (state_.types.contains(each.name))
      refuse(each.at, cat("'", each.name, "' is the name of another variable"));
    if (!declared_.empty()) declared_.back().push_back(each.name);
    state_.types[each.name] = dtype;
    state_.depth[each.name] = ranges_.sizes.size();
    if (!each.value.empty()) assign(each.name, dtype, value(each.value[0]), true, each.at);
  }

  // Variables that the block declares end with it.
  template <class Body>
  void scoped(Body&& body) {
    declared_.emplace_back();
    body();
    for (const std::string& name : declared_.back()) {
      state_.types.erase(name);
      state_.variables.erase(name);
    }
    declared_.pop_back();
  }

  void assign(const std::string& name, DType dtype, const CValue& given, bool fresh, Position at) {
    Term value = converted(given.term, dtype);
    const auto before = state_.variables.find(name);
    // Outputs keep what they had where the function returned; nothing reads other variables there.
    const bool masked = !fresh && state_.returned && name.starts_with("*");
    if (masked && before == state_.variables.end())
      refuse(at, cat("output '", name.substr(1), "' is not set where the function has returned before"));
    if (masked) value = ops::select(*state_.returned, before->second.term, value);
    state_.variables.insert_or_assign(name, CValue{value, false, as_type(b_, ranges_, given.affine, dtype)});
  }

  void leave(const CStatement& each) {
    if ((function_.result == "void") != each.value.empty())
      refuse(each.at, each.value.empty() ? "the function returns a value" : "the function returns no value");
    if (!each.value.empty()) {
      const Term result = converted(value(each.value[0]).term, dtype_of(function_.result, each.at));
      state_.result =
          state_.returned && state_.result ? ops::select(*state_.returned, *state_.result, result) : result;
    }
    state_.done = true;
  }

  void loop(const CStatement& each) {
    run(each.first);
    if (is_long_reduction(each)) return reduction(each);
    const int before = steps_;
    while (!state_.done) {
      const auto goes_on = known(truth(value(each.value[0]).term));
      if (!goes_on && steps_ == before) return reduction(each);
      if (!goes_on) refuse(each.at, kOpenLoop);
      if (!*goes_on) return;
      if (++steps_ > kMostSteps) refuse(each.at, cat("loops have more than ", kMostSteps, " rounds"));
      scoped([&] {
        if (summed_.empty())
          run(each.body);
        else
          accumulate(each.body, std::nullopt);
      });
      if (!state_.done) run(each.otherwise);
    }
  }

  void branch(const CStatement& each) {
    const Term condition = truth(value(each.value[0]).term);
    if (const auto decided = known(condition))
      return scoped([&] { run(*decided ? each.body : each.otherwise); });
    const State before = state_;
    scoped([&] { run(each.body); });
    State yes = std::exchange(state_, before);
    scoped([&] { run(each.otherwise); });
    merge(condition, yes);
  }

  // state_ is that of the other branch. Variables of a branch that returned have no readers; outputs do.
  void merge(Term condition, const State& yes) {
    const State no = std::exchange(state_, {});
    const auto chosen = [&](const Term& a, const Term& b) {
      return a.id() == b.id() ? a : ops::select(condition, a, b);
    };
    state_.types = no.types;
    state_.depth = no.depth;
    for (const auto& [name, type] : no.types) {
      const auto a = yes.variables.find(name), b = no.variables.find(name);
      const bool has_a = a != yes.variables.end(), has_b = b != no.variables.end();
      const bool output = name.starts_with("*");
      if (has_a && has_b && (output || yes.done == no.done))
        state_.variables.emplace(name, CValue{chosen(a->second.term, b->second.term)});
      else if (!output && has_a && no.done)
        state_.variables.emplace(name, a->second);
      else if (!output && has_b && yes.done)
        state_.variables.emplace(name, b->second);
    }
    state_.result = yes.result && no.result ? chosen(*yes.result, *no.result)
                    : yes.result            ? yes.result
                                            : no.result;
    state_.done = yes.done && no.done;
    if (!state_.done) state_.returned = returned(condition, yes, no);
  }

  static std::optional<Term> returned(Term condition, const State& yes, const State& no) {
    const Term other = ops::logical_not(condition);
    if (yes.done) return no.returned ? ops::logical_or(condition, *no.returned) : condition;
    if (no.done) return yes.returned ? ops::logical_or(other, *yes.returned) : other;
    if (!yes.returned && !no.returned) return std::nullopt;
    if (!no.returned) return ops::logical_and(condition, *yes.returned);
    if (!yes.returned) return ops::logical_and(other, *no.returned);
    if (yes.returned->id() == no.returned->id()) return yes.returned;
    return ops::select(condition, *yes.returned, *no.returned);
  }

  // ---- expressions
  CValue value(const CExpression& e) {
    switch (e.kind) {
      case Kind::kNumber: return literal(e);
      case Kind::kName: return variable(e);
      case Kind::kLoad: return load(e);
      case Kind::kCast: {
        const CValue of = value(e.args[0]);
        const DType to = dtype_of(e.name, e.at);
        return {converted(of.term, to), false, as_type(b_, ranges_, of.affine, to)};
      }
      case Kind::kUnary: return unary(e);
      case Kind::kBinary: return binary(e);
      case Kind::kCall: {
        std::vector<CValue> args;
        for (const CExpression& arg : e.args) args.push_back(value(arg));
        return call_c_library(b_, e, std::move(args), [&](const std::string& what) { refuse(e.at, what); });
      }
      case Kind::kChoice: break;
    }
    const Term condition = truth(value(e.args[0]).term);
    if (const auto decided = known(condition)) return value(e.args[*decided ? 1 : 2]);
    const CValue a = value(e.args[1]), b = value(e.args[2]);
    const DType dtype = common_type(a, b);
    return {ops::select(condition, converted(a.term, dtype), converted(b.term, dtype)), are_weak(a, b)};
  }

  CValue literal(const CExpression& e) const {
    if (e.real) {
      const bool single = e.suffix == "f";
      return {ops::number(b_, single ? DType::kF32 : DType::kF64, e.number), !single};
    }
    return {Term(b_, b_.elements({sym::Expr(e.integer)}, {}, literal_type(e))), false};
  }

  CValue variable(const CExpression& e) const {
    for (const std::set<std::string>& sums : summed_)
      if (sums.contains(e.name))
        refuse(e.at, cat("'", e.name, "' is read before the loop over sizes that computes it ends"));
    if (const auto found = state_.variables.find(e.name); found != state_.variables.end())
      return found->second;
    if (const auto constant = c_constant(e.name)) return {ops::number(b_, DType::kF64, *constant), true};
    if (e.name == "true" || e.name == "false")
      return {ops::number(b_, DType::kBool, e.name == "true"), false};
    refuse(e.at, state_.types.contains(e.name) ? cat("'", e.name, "' has no value on every path")
                                               : cat("'", e.name, "' is not declared"));
  }

  CValue unary(const CExpression& e) {
    const CValue of = value(e.args[0]);
    if (e.name == "!") return {ops::logical_not(truth(of.term)), false};
    const Term term = converted(of.term, promoted(of.term.dtype()));
    if (e.name == "+") return {term, of.weak};
    if (e.name == "-") return {-term, of.weak};
    if (is_float(term.dtype())) refuse(e.at, "'~' takes integers");
    return {ops::apply(OpKind::kBitNot, term), false};
  }

  CValue binary(const CExpression& e) {
    const std::string& sign = e.name;
    if (sign == "&&" || sign == "||") {
      const Term left = truth(value(e.args[0]).term);
      if (const auto decided = known(left); decided && *decided == (sign == "||")) return {left, false};
      const Term right = truth(value(e.args[1]).term);
      return {sign == "&&" ? ops::logical_and(left, right) : ops::logical_or(left, right), false};
    }
    const CValue a = value(e.args[0]), b = value(e.args[1]);
    const bool shift = sign == "<<" || sign == ">>";
    const DType dtype = shift ? promoted(a.term.dtype()) : common_type(a, b);
    if (is_float(dtype) && (shift || sign == "%" || sign == "&" || sign == "|" || sign == "^"))
      refuse(e.at, cat("'", sign, "' takes integers"));
    if (shift && is_float(b.term.dtype())) refuse(e.at, cat("'", sign, "' takes integers"));
    const IndexComparison range = compare(b_, ranges_, sign, a, b, dtype);
    if (range.decided) return {ops::number(b_, DType::kBool, *range.decided), false};
    if (range.boundary && range.index >= 0) boundaries_.push_back({range.index, *range.boundary});
    const Term x = converted(a.term, dtype), y = converted(b.term, dtype);
    const auto made = [&](OpKind kind) {
      return CValue{ops::apply(kind, x, y), are_weak(a, b),
                    as_type(b_, ranges_, affine(b_, sign, a, b), dtype)};
    };
    if (sign == "+") return made(OpKind::kAdd);
    if (sign == "-") return made(OpKind::kSub);
    if (sign == "*") return made(OpKind::kMul);
    if (sign == "/") return made(OpKind::kDiv);
    if (sign == "%") return made(OpKind::kRem);
    if (sign == "&") return made(OpKind::kBitAnd);
    if (sign == "|") return made(OpKind::kBitOr);
    if (sign == "^") return made(OpKind::kBitXor);
    if (sign == "<<") return made(OpKind::kShl);
    if (sign == ">>") return made(OpKind::kShr);
    if (sign == "==") return {ops::equal(x, y), false};
    if (sign == "!=") return {ops::logical_not(ops::equal(x, y)), false};
    if (sign == "<") return {ops::less(x, y), false};
    if (sign == "<=") return {ops::less_equal(x, y), false};
    return {sign == ">" ? ops::less(y, x) : ops::less_equal(y, x), false};
  }

  // An index that is not inside may be so between the boundaries of its comparisons.
  void wish_split(Term x, const std::vector<CValue>& indices) {
    if (!may_split_ || split_) return;
    const std::set<int> outside = read_outside(b_, ranges_, x, indices);
    for (const CSplit& each : boundaries_)
      if (!split_ && outside.contains(each.index)) split_ = each;
  }

  // ---- arrays
  CValue load(const CExpression& e) {
    const CParameter& parameter = *arrays_.at(e.name);
    const auto found = values_.find(e.name);
    if (found == values_.end()) refuse(e.at, cat("'", e.name, "' is not an input"));
    const Term x(b_, found->second);
    if (x.rank() != parameter.indices)
      refuse(parameter.at, cat("'", e.name, "' has ", x.rank(), " dims, not ", parameter.indices));
    std::vector<CValue> indices;
    for (const CExpression& each : e.args) {
      indices.push_back(value(each));
      if (is_float(indices.back().term.dtype())) refuse(each.at, "an index must be an integer");
    }
    const auto view = view_of(b_, ranges_, x, indices);
    if (!view) wish_split(x, indices);
    if (!view && !split_) require_elements(parameter, x);
    return {converted(view ? *view : gathered(b_, x, indices), dtype_of(parameter.type, parameter.at)),
            false};
  }

  // An empty array has no nearest element.
  void require_elements(const CParameter& parameter, Term x) const {
    sym::Expr unread = 0;
    for (const auto* list : {&ranges_.shape, &ranges_.sizes})
      for (const sym::Expr size : *list) unread = sym::logical_or(unread, sym::eq(size, 0));
    for (int64_t d = 0; d < x.rank(); ++d)
      b_.require(sym::logical_or(sym::gt(x.dim(d), 0), unread),
                 cat(sym::escaped(function_.name), ": dim ", d, " of '", sym::escaped(parameter.name),
                     "' is {0}, but elements are read: it needs at least one"),
                 {x.dim(d)});
  }

  // Few rounds over arrays are written out: x[i + k] is a view for each k.
  bool is_long_reduction(const CStatement& each) {
    constexpr int64_t kFewRounds = 8;
    if (arrays_.empty() || !is_counting(each)) return false;
    const auto begin = known_size(b_, state_.variables.at(each.first[0].name).term);
    const auto limit = value(each.value[0].args[1]).term;
    const auto end = known_size(b_, limit);
    if (!begin || !end || (b_.holds(sym::le(*end - *begin, kFewRounds)) && (*end - *begin).is_const()))
      return false;
    return !problem_of_reduction(each, sums_of(each));
  }

  // ---- loops over sizes: for (int k = 0; k < n; ++k) s += ...;
  void reduction(const CStatement& each) {
    const CExpression& condition = each.value[0];
    if (!is_counting(each))
      refuse(each.at,
             "a loop whose count is not known when compiling must have the form for (int k = 0; k < n; ++k)");
    const std::string& name = each.first[0].name;
    const auto begin = known_size(b_, state_.variables.at(name).term),
               end = known_size(b_, value(condition.args[1]).term);
    if (!begin || !end) refuse(each.at, kOpenLoop);
    const sym::Expr extent = b_.simplify(sym::max(*end - *begin + (condition.name == "<=" ? 1 : 0), 0));
    std::set<std::string> sums = sums_of(each);
    if (const auto problem = problem_of_reduction(each, sums)) refuse(problem->at, problem->what);
    ranges_.sizes.push_back(extent);
    const Affine index{.index = -static_cast<int>(ranges_.sizes.size()), .scale = 1, .offset = *begin};
    const Term count = ops::positions_along(b_, extent, 0, ranges_.rank());
    const DType dtype = state_.types.at(name);
    state_.variables.insert_or_assign(
        name, CValue{ops::cast(count + ops::size_as(b_, DType::kI64, *begin), dtype, false), false, index});
    state_.depth[name] = ranges_.sizes.size();
    summed_.push_back(std::move(sums));
    scoped([&] { accumulate(each.body, std::nullopt); });
    summed_.pop_back();
    ranges_.sizes.pop_back();
  }

  // Variables of outside that a loop assigns to.
  std::set<std::string> sums_of(const CStatement& loop) const {
    std::set<std::string> out;
    collect_sums(loop.body, out);
    return out;
  }
  void collect_sums(const std::vector<CStatement>& list, std::set<std::string>& out) const {
    for (const CStatement& each : list) {
      if (each.kind == CStatement::Kind::kAssign && state_.types.contains(each.name) &&
          state_.depth.at(each.name) <= ranges_.sizes.size())
        out.insert(each.name);
      for (const auto* part : {&each.first, &each.body, &each.otherwise}) collect_sums(*part, out);
    }
  }

  void accumulate(const std::vector<CStatement>& list, std::optional<Term> mask) {
    for (const CStatement& each : list) accumulate(each, mask);
  }

  void accumulate(const CStatement& each, std::optional<Term> mask) {
    if (each.kind == CStatement::Kind::kBlock) return scoped([&] { accumulate(each.body, mask); });
    if (each.kind == CStatement::Kind::kIf) {
      const Term condition = truth(value(each.value[0]).term);
      const auto both = [&](Term c) { return mask ? ops::logical_and(*mask, c) : c; };
      scoped([&] { accumulate(each.body, both(condition)); });
      if (!each.otherwise.empty())
        scoped([&] { accumulate(each.otherwise, both(ops::logical_not(condition))); });
      return;
    }
    if (each.kind == CStatement::Kind::kFor) {
      if (mask) refuse(each.at, "a loop over sizes cannot contain a loop inside of an if");
      return run(each);
    }
    const bool own = each.kind == CStatement::Kind::kDeclare || !summed_.back().contains(each.name);
    if (!own) return add_up(each, mask);
    if (mask && each.kind == CStatement::Kind::kAssign)
      refuse(each.at, "inside of a loop over sizes, an if can contain only sums and declarations");
    run(each);
  }

  // Over the loops since the variable was declared.
  void add_up(const CStatement& each, std::optional<Term> mask) {
    const CSum sum = *sum_of(each);
    const DType dtype = state_.types.at(each.name);
    const DType computed = is_storage_float(dtype) ? DType::kF32 : dtype;
    const Term given = value(*sum.item).term;
    if (!takes_items(sum, dtype, given.dtype()))
      refuse(each.at, cat("'", each.name, "' is ", stridec::name(dtype),
                          ", and a loop over sizes changes it by ", stridec::name(given.dtype()),
                          ", which C would convert in each iteration; declare it with that type, or cast"));
    Term item = converted(given, computed);
    const auto known = state_.variables.find(each.name);
    if (known == state_.variables.end())
      refuse(each.at, cat("'", each.name, "' has no value before the loop"));
    if (mask) item = ops::select(*mask, item, neutral(b_, sum, computed));
    ops::Dims dims;
    for (size_t d = 0; d < ranges_.sizes.size() - state_.depth.at(each.name); ++d)
      dims.push_back(static_cast<int64_t>(d));
    const Term after = accumulated(b_, sum, converted(known->second.term, computed), whole(item), dims);
    state_.variables.insert_or_assign(each.name, CValue{converted(after, dtype), false});
  }

  // The value at every round of the loops that are open, whether or not it depends on them.
  Term whole(Term value) const {
    graph::Shape shape(static_cast<size_t>(ranges_.rank()), sym::Expr(1));
    const size_t lead = shape.size() - static_cast<size_t>(value.rank());
    for (size_t d = lead; d < shape.size(); ++d) shape[d] = value.dim(static_cast<int64_t>(d - lead));
    for (size_t d = 0; d < ranges_.sizes.size(); ++d) shape[d] = ranges_.sizes[ranges_.sizes.size() - 1 - d];
    return Term(b_, ops::broadcast_to(b_, value.id(), shape));
  }

  Builder& b_;
  const CFunction& function_;
  const std::map<std::string, graph::ValueId, std::less<>>& values_;
  const std::map<std::string, Attr, std::less<>>& attributes_;
  const std::vector<std::string>& indices_;
  const std::vector<sym::Expr>& begins_;
  const bool may_split_;
  std::vector<CSplit> boundaries_;  // of comparisons
  std::optional<CSplit> split_;
  std::map<std::string, const CParameter*, std::less<>> arrays_;
  CRanges ranges_;
  std::vector<std::set<std::string>> summed_;  // variables that they change
  State state_;
  std::vector<std::vector<std::string>> declared_;  // by the blocks that are open
  int steps_ = 0;
};

class PieceBuilder {
 public:
  PieceBuilder(Builder& builder, const CFunction& function,
               const std::map<std::string, graph::ValueId, std::less<>>& values,
               const std::map<std::string, Attr, std::less<>>& attributes)
      : b_(builder), function_(function), values_(values), attributes_(attributes) {}

  std::map<std::string, graph::ValueId> build(const CPiece& piece) {
    Runner runner(b_, function_, values_, attributes_, piece, pieces_ < kMostPieces);
    auto made = runner.run();
    if (!runner.split()) return made;
    const CSplit split = *runner.split();  // what was built has no reader
    const auto at = static_cast<size_t>(split.index);
    const auto part = [&](sym::Expr begin, sym::Expr extent) {
      CPiece of = piece;
      of.begins[at] = of.begins[at] + begin;
      of.place.shape[at] = extent;
      auto values = build(of);
      for (auto& [name, value] : values) value = ops::broadcast_to(b_, value, of.place.shape);
      return values;
    };
    ++pieces_;
    const auto first = part(0, split.at), second = part(split.at, piece.place.shape[at] - split.at);
    for (auto& [name, value] : made) value = ops::concat(b_, {first.at(name), second.at(name)}, split.index);
    return made;
  }

 private:
  Builder& b_;
  const CFunction& function_;
  const std::map<std::string, graph::ValueId, std::less<>>& values_;
  const std::map<std::string, Attr, std::less<>>& attributes_;
  int pieces_ = 1;
};

}  // namespace

std::map<std::string, graph::ValueId> build_c_function(
    Builder& builder, const CFunction& function,
    const std::map<std::string, graph::ValueId, std::less<>>& values,
    const std::map<std::string, Attr, std::less<>>& attributes, const CPlace& place) {
  const std::vector<sym::Expr> begins(place.shape.size(), sym::Expr(0));
  return PieceBuilder(builder, function, values, attributes).build({place, begins});
}

}  // namespace stridec::extend

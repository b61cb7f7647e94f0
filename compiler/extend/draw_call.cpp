#include "compiler/extend/draw_call.h"

#include <algorithm>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/run_reference.h"
#include "compiler/ops/op_table.h"

namespace stridec::extend {
namespace {

using graph::Builder;

constexpr int64_t kMostElements = 1 << 22;  // of a value
constexpr int64_t kMostSize = 1 << 16;      // of a dim that conditions ask for
constexpr int kTries = 100;                 // of one draw, until it meets the conditions

// An attribute that has no default.
Attr usual_value(DeclaredAttribute::Kind kind) {
  using Kind = DeclaredAttribute::Kind;
  switch (kind) {
    case Kind::kInt: return sym::Expr(2);
    case Kind::kFloat: return 0.5;
    case Kind::kString: return std::string();
    case Kind::kType: return DType::kF32;
    case Kind::kInts: return std::vector<sym::Expr>{1};
    case Kind::kFloats: break;
  }
  return std::vector<double>{0.5};
}

void collect(const Term& term, std::set<std::string>& names, std::set<int64_t>& numbers) {
  if (term.kind == Term::Kind::kName) names.insert(term.name);
  if (term.kind == Term::Kind::kNumber && term.integer) numbers.insert(static_cast<int64_t>(term.number));
  for (const Term& arg : term.args) collect(arg, names, numbers);
}

// By name: what conditions compare it with, next to these, and multiples of them; other names of the same
// conditions.
struct Hints {
  std::map<std::string, std::vector<int64_t>> numbers;
  std::map<std::string, std::set<std::string>> names;

  void add(const Term& condition) {
    if (condition.is_call("and")) {
      for (const Term& each : condition.args) add(each);
      return;
    }
    std::set<std::string> found;
    std::set<int64_t> compared;
    collect(condition, found, compared);
    for (const std::string& name : found) {
      for (const std::string& other : found)
        if (other != name) names[name].insert(other);
      for (const int64_t number : compared)
        for (const int64_t each : {number, number, number, 2 * number, 3 * number, number + 1, number - 1})
          if (number <= kMostSize && each >= 0 && each <= kMostSize) numbers[name].push_back(each);
    }
  }
};

sym::Expr size_of(const Term& term, const Attr& size) {
  const auto* e = std::get_if<sym::Expr>(&size);
  if (!e || !e->is_const() || e->value() < 0)
    fail(ErrorKind::kDoesNotFit, "does-not-fit", cat("the size ", to_string(term), " is ", to_string(size)));
  return *e;
}

std::vector<int64_t> sizes_of(const UserOperator& op, const CallKind& kind) {
  if (!kind.large)
    return kind.round < 8 ? std::vector<int64_t>{2, 4, 6} : std::vector<int64_t>{0, 1, 2, 3, 4, 8};
  // By the rank of the largest input: their product is above 10000. Kernels in blocks want multiples of 16.
  constexpr int64_t kSizes[] = {12289, 111, 23, 11, 7};
  size_t rank = 1;
  for (const DeclaredTensor& input : op.inputs) rank = std::max(rank, input.shape.size());
  const int64_t size = kSizes[std::min(rank, std::size(kSizes)) - 1];
  return {size, size, size + 1, (size / 16 + 1) * 16};
}

class CallDraw {
 public:
  CallDraw(Draws& draws, const UserOperator& op, const CallConditions& conditions, const CallKind& kind)
      : draws_(draws), op_(op), conditions_(conditions), values_(kind.values), sizes_(sizes_of(op, kind)) {
    for (const Requirement& each : op.require) hints_.add(each.condition);
    for (const Term& each : conditions.where) hints_.add(each);
  }

  std::optional<DrawnCall> draw(std::string& why) {
    for (int i = 0; i < kTries; ++i) try {
        bindings_ = {}, drawn_ = {}, known_ = {};
        draw_attributes();
        draw_types();
        if (!meets_conditions(why)) continue;
        for (size_t t = 0; t < drawn_.types.size(); ++t)
          drawn_.inputs.push_back(known_[t] ? std::move(*known_[t]) : draw_input(drawn_.types[t]));
        return std::move(drawn_);
      } catch (const Error& error) {
        const ErrorKind kind = error.diagnostic.kind;
        if (kind == ErrorKind::kInternal || kind == ErrorKind::kMalformed) throw;
        why = error.diagnostic.message;
      }
    return std::nullopt;
  }

 private:
  // Integers stay small: they may be indices, and sums of large ones wrap in one type and not in another.
  loop::HostTensor draw_input(const graph::Type& type) {
    const Check check = op_.reference ? op_.reference->inputs : Check{};
    const Values values = is_float(type.dtype) ? values_ : Values::kPlain;
    loop::HostTensor drawn = draw_tensor(draws_, type, check, values, false);
    return values == Values::kPositiveInfinity && draws_.chance(0.5) ? negated(std::move(drawn)) : drawn;
  }

  int64_t draw_size(const std::string& name) {
    if (const auto others = hints_.names.find(name); others != hints_.names.end() && draws_.chance(0.3))
      for (const std::string& other : others->second)
        if (const auto known = bindings_.attributes.find(other); known != bindings_.attributes.end())
          if (const auto* e = std::get_if<sym::Expr>(&known->second); e && e->is_const() && e->value() >= 0)
            return e->value();
    if (const auto near = hints_.numbers.find(name); near != hints_.numbers.end() && draws_.chance(0.7))
      return draws_.any_of(near->second);
    return draws_.any_of(sizes_);
  }

  void draw_attributes() {
    for (const DeclaredAttribute& each : op_.attributes) {
      const auto given = conditions_.attributes.find(each.name);
      Attr value = given != conditions_.attributes.end() ? given->second
                   : each.otherwise                      ? *each.otherwise
                                                         : usual_value(each.kind);
      const auto near = hints_.numbers.find(each.name);
      if (given == conditions_.attributes.end() && !each.otherwise && near != hints_.numbers.end() &&
          each.kind == DeclaredAttribute::Kind::kInt && draws_.chance(0.7))
        value = sym::Expr(draws_.any_of(near->second));
      if (given != conditions_.attributes.end() || !each.otherwise)
        drawn_.attributes.insert_or_assign(each.name, value);
      bindings_.attributes.insert_or_assign(each.name, std::move(value));
    }
  }

  void draw_types() {
    graph::Graph scratch;
    Builder builder(scratch, ops::shape_table());
    for (const DeclaredTensor& input : op_.inputs)
      for (const DeclaredDim& each : input.shape)
        if (!each.rest && each.size.kind == Term::Kind::kName &&
            !bindings_.attributes.contains(each.size.name))
          bindings_.attributes.emplace(each.size.name, sym::Expr(draw_size(each.size.name)));
    std::map<std::string, DType> types;
    for (const DeclaredTensor& input : op_.inputs) {
      const DType dtype = types.emplace(input.type, draws_.any_of(types_of(op_, input.type))).first->second;
      graph::Type type{dtype, {}};
      if (!input.has_shape)
        type.shape.assign(static_cast<size_t>(draws_.below(3)), sym::Expr(draws_.any_of(sizes_)));
      for (const DeclaredDim& each : input.shape) {
        if (!each.rest) {
          type.shape.push_back(size_of(each.size, Evaluator(builder, bindings_).attribute(each.size)));
          continue;
        }
        std::vector<sym::Expr> dims(static_cast<size_t>(draws_.below(3)));
        for (sym::Expr& dim : dims) dim = draws_.any_of(sizes_);
        if (!each.rest_name.empty())
          dims = std::get<std::vector<sym::Expr>>(
              bindings_.attributes.emplace(each.rest_name, dims).first->second);
        type.shape.insert(type.shape.end(), dims.begin(), dims.end());
      }
      check_extents(type);
      drawn_.types.push_back(std::move(type));
    }
    for (const TypeVariable& each : op_.types)
      if (const auto bound = types.find(each.name); bound != types.end())
        bindings_.attributes.insert_or_assign(each.name, bound->second);
    known_.resize(drawn_.types.size());
  }

  // Contents of constants are drawn before, since conditions may be about them.
  bool meets_conditions(std::string& why) {
    graph::Graph scratch;
    Builder builder(scratch, ops::shape_table());
    for (size_t t = 0; t < drawn_.types.size(); ++t) {
      const graph::Type& type = drawn_.types[t];
      const bool constant = t < conditions_.constant.size() && conditions_.constant[t];
      if (constant) known_[t] = draw_tensor(draws_, type, {}, Values::kPlain, true);
      bindings_.values.insert_or_assign(op_.inputs[t].name,
                                        constant ? builder.constant("", type, graph::own(known_[t]->bytes))
                                                 : builder.input(op_.inputs[t].name, type));
    }
    const auto holds = [&](const Term& condition) {
      if (Evaluator(builder, bindings_).condition(condition).is_const(1)) return true;
      why = cat("no sizes meet ", to_string(condition));
      return false;
    };
    return std::ranges::all_of(op_.require, [&](const Requirement& each) { return holds(each.condition); }) &&
           std::ranges::all_of(conditions_.where, holds);
  }

  Draws& draws_;
  const UserOperator& op_;
  const CallConditions& conditions_;
  const Values values_;
  const std::vector<int64_t> sizes_;
  Hints hints_;
  Bindings bindings_;
  DrawnCall drawn_;
  std::vector<std::optional<loop::HostTensor>> known_;  // by input
};

}  // namespace

void check_extents(const graph::Type& type) {
  int64_t count = 1;
  for (const sym::Expr dim : type.shape) {
    if (dim.is_const(0)) return;
    if (!dim.is_const()) continue;
    if (dim.value() > kMostElements / count)
      fail(ErrorKind::kDoesNotFit, std::string(kTooLarge),
           cat("a value of ", graph::to_string(type), " has more than ", kMostElements, " elements"));
    count *= dim.value();
  }
}

std::optional<DrawnCall> draw_call(Draws& draws, const UserOperator& op, const CallConditions& conditions,
                                   const CallKind& kind, std::string& why) {
  return CallDraw(draws, op, conditions, kind).draw(why);
}

}  // namespace stridec::extend

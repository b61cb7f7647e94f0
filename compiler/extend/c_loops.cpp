#include "compiler/extend/c_loops.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "compiler/base/text.h"
#include "compiler/extend/c_value.h"

namespace stridec::extend {
namespace {

using graph::Builder;
using graph::OpKind;
using Kind = CExpression::Kind;

bool is_step(const CStatement& loop, const std::string& name) {
  if (loop.otherwise.size() != 1 || loop.otherwise[0].kind != CStatement::Kind::kAssign ||
      loop.otherwise[0].name != name)
    return false;
  const CExpression& e = loop.otherwise[0].value[0];
  return e.kind == Kind::kBinary && e.name == "+" && e.args[0].kind == Kind::kName &&
         e.args[0].name == name && e.args[1].kind == Kind::kNumber && !e.args[1].real &&
         e.args[1].integer == 1;
}

// The name of a variable among `names` that the expression reads.
const CExpression* reader(const CExpression& e, const std::set<std::string>& names) {
  if (e.kind == Kind::kName && names.contains(e.name)) return &e;
  for (const CExpression& arg : e.args)
    if (const CExpression* found = reader(arg, names)) return found;
  return nullptr;
}

// Updates of one class commute: those by + and -, and those by one of the others.
std::string class_of(const CSum& sum) {
  return sum.ignores_nan ? cat("f", sum.sign) : sum.sign == "-" ? "+" : sum.sign;
}

class ReductionCheck {
 public:
  explicit ReductionCheck(const std::set<std::string>& changed) : changed_(changed) {}

  std::optional<CProblem> check(const std::vector<CStatement>& list) {
    for (const CStatement& each : list)
      if (auto problem = check(each)) return problem;
    return std::nullopt;
  }

 private:
  std::optional<CProblem> check(const CStatement& each) {
    if (each.kind == CStatement::Kind::kReturn) return CProblem{each.at, "a loop over sizes cannot return"};
    if (each.kind == CStatement::Kind::kAssign && changed_.contains(each.name)) return update(each);
    for (const CExpression& value : each.value)
      if (auto problem = reads(value)) return problem;
    for (const auto* part : {&each.first, &each.body, &each.otherwise})
      if (auto problem = check(*part)) return problem;
    return std::nullopt;
  }

  std::optional<CProblem> update(const CStatement& each) {
    const auto sum = sum_of(each);
    if (!sum)
      return CProblem{each.at,
                      cat("a loop over sizes may change '", each.name, "' by +=, -=, *=, fmin or fmax")};
    const auto [known, fresh] = classes_.emplace(each.name, class_of(*sum));
    if (!fresh && known->second != class_of(*sum))
      return CProblem{each.at, cat("a loop over sizes changes '", each.name, "' by '", known->second,
                                   "' and by '", class_of(*sum), "'; its iterations must commute")};
    return reads(*sum->item);
  }

  std::optional<CProblem> reads(const CExpression& e) const {
    const CExpression* found = reader(e, changed_);
    if (!found) return std::nullopt;
    return CProblem{found->at,
                    cat("'", found->name, "' is read before the loop over sizes that computes it ends")};
  }

  const std::set<std::string>& changed_;
  std::map<std::string, std::string> classes_;  // of the updates of a variable
};

}  // namespace

std::optional<CSum> sum_of(const CStatement& assignment) {
  const CExpression& e = assignment.value[0];
  const auto is_self = [&](const CExpression& x) {
    return x.kind == Kind::kName && x.name == assignment.name;
  };
  const bool call = e.kind == Kind::kCall;
  if ((!call && e.kind != Kind::kBinary) || e.args.size() != 2) return std::nullopt;
  const bool right = (call || e.name != "-") && !is_self(e.args[0]) && is_self(e.args[1]);
  if (!is_self(e.args[0]) && !right) return std::nullopt;
  CSum sum{.sign = e.name, .item = &e.args[right ? 0 : 1]};
  if (!call) return e.name == "+" || e.name == "-" || e.name == "*" ? std::optional(sum) : std::nullopt;
  sum.ignores_nan = e.name == "fmin" || e.name == "fminf" || e.name == "fmax" || e.name == "fmaxf";
  if (!sum.ignores_nan && e.name != "min" && e.name != "max") return std::nullopt;
  sum.sign = sum.ignores_nan ? e.name.substr(1, 3) : e.name;
  return sum;
}

bool is_counting(const CStatement& loop) {
  const CExpression& condition = loop.value[0];
  return loop.first.size() == 1 && loop.first[0].kind == CStatement::Kind::kDeclare &&
         !loop.first[0].value.empty() && condition.kind == Kind::kBinary &&
         (condition.name == "<" || condition.name == "<=") && condition.args[0].kind == Kind::kName &&
         condition.args[0].name == loop.first[0].name && is_step(loop, loop.first[0].name);
}

std::optional<CProblem> problem_of_reduction(const CStatement& loop, const std::set<std::string>& changed) {
  const std::string& counter = loop.first[0].name;
  std::set<std::string> counted = changed;
  counted.insert(counter);
  if (const CExpression* found = reader(loop.value[0].args[1], counted))
    return CProblem{found->at, cat("the limit of a loop over sizes depends on '", found->name,
                                   "', which the loop changes")};
  if (changed.contains(counter))
    return CProblem{loop.at, cat("the body of a loop over sizes changes its counter '", counter, "'")};
  return ReductionCheck(changed).check(loop.body);
}

bool takes_items(const CSum& sum, DType accumulator, DType item) {
  if (is_bool(accumulator)) return false;
  if (is_float(accumulator)) return true;
  if (is_float(item)) return false;
  if (sum.sign != "min" && sum.sign != "max") return true;  // integers wrap
  if (item == accumulator || is_bool(item)) return true;
  // The comparison is that of the accumulator's type, or no value of an item is outside of it.
  const DType a = promoted(accumulator), b = promoted(item);
  const bool wider = info(a).bits > info(b).bits || (info(a).bits == info(b).bits && !is_signed(a));
  if (a == accumulator && (a == b || wider)) return true;
  return info(item).bits < info(accumulator).bits && (is_signed(accumulator) || !is_signed(item));
}

ops::Term neutral(Builder& b, const CSum& sum, DType dtype) {
  const bool least = sum.sign == "min";
  if (!least && sum.sign != "max") return ops::number(b, dtype, sum.sign == "*" ? 1 : 0);
  if (is_float(dtype)) return ops::number(b, dtype, least ? INFINITY : -INFINITY);
  const int bits = info(dtype).bits - (is_signed(dtype) ? 1 : 0);
  const auto high = static_cast<int64_t>(bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1);
  const int64_t value = least ? high : is_signed(dtype) ? -high - 1 : 0;
  return ops::Term(b, b.elements({sym::Expr(value)}, {}, dtype));
}

ops::Term accumulated(Builder& b, const CSum& sum, ops::Term start, ops::Term item, const ops::Dims& dims) {
  const bool least = sum.sign == "min", most = sum.sign == "max";
  const bool ignores_nan = sum.ignores_nan && is_float(item.dtype());
  if (ignores_nan) item = ops::select(ops::apply(OpKind::kIsNan, item), neutral(b, sum, item.dtype()), item);
  const OpKind kind = sum.sign == "*" ? OpKind::kReduceProd
                      : least         ? OpKind::kReduceMin
                      : most          ? OpKind::kReduceMax
                                      : OpKind::kReduceSum;
  const ops::Term total = ops::reduce(kind, item, dims);
  if (sum.sign == "+") return start + total;
  if (sum.sign == "-") return start - total;
  if (sum.sign == "*") return start * total;
  const ops::Term after = least ? ops::minimum(start, total) : ops::maximum(start, total);
  return ignores_nan ? ops::select(ops::apply(OpKind::kIsNan, start), total, after) : after;
}

}  // namespace stridec::extend

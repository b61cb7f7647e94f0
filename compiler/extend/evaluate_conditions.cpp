// Attributes and conditions of rules, as symbolic expressions.
#include <algorithm>
#include <cmath>

#include "compiler/base/number.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/extend/evaluate.h"

namespace stridec::extend {
namespace {

using graph::ValueId;

sym::Expr comparison_of(std::string_view name, sym::Expr a, sym::Expr b) {
  if (name == "==") return sym::eq(a, b);
  if (name == "!=") return sym::ne(a, b);
  if (name == "<") return sym::lt(a, b);
  if (name == "<=") return sym::le(a, b);
  return name == ">" ? sym::gt(a, b) : sym::ge(a, b);
}

// Zeros of both signs differ: products and sums of them do.
bool is_same_number(double a, double b) { return a == b && std::signbit(a) == std::signbit(b); }

bool comparison_holds(std::string_view name, double a, double b) {
  if (name == "==") return is_same_number(a, b);
  if (name == "!=") return !is_same_number(a, b);
  if (name == "<") return a < b;
  if (name == "<=") return a <= b;
  return name == ">" ? a > b : a >= b;
}

double least_normal(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1p-14;
    case DType::kF64: return 0x1p-1022;
    default: return 0x1p-126;
  }
}

}  // namespace

bool Evaluator::is_tensor(const Term& term) const {
  return term.kind == Term::Kind::kName && bindings_.values.contains(term.name);
}

ValueId Evaluator::variable(const Term& term) const {
  const auto bound =
      term.kind == Term::Kind::kName ? bindings_.values.find(term.name) : bindings_.values.end();
  if (bound == bindings_.values.end())
    does_not_fit(cat("'", to_string(term), "' is not a tensor of the rule"));
  return bound->second;
}

std::vector<double> Evaluator::elements(ValueId id) const {
  const graph::Value& value = b_.graph()[id];
  const DType dtype = value.type.dtype;
  std::vector<double> out;
  if (const graph::Data* data = value.known_data()) {
    const size_t width = static_cast<size_t>(byte_size(dtype));
    for (size_t at = 0; at < data->size; at += width)
      out.push_back(is_float(dtype) ? read_float(dtype, data->bytes + at)
                                    : static_cast<double>(read_integer(dtype, data->bytes + at)));
    return out;
  }
  does_not_fit("the contents of a tensor are not known when compiling; declare it const");
}

// Elementwise, on the contents of constants.
std::vector<double> Evaluator::doubles(const Term& term) {
  if (term.kind == Term::Kind::kNumber) return {term.number};
  if (is_tensor(term)) return elements(bindings_.values.at(term.name));
  if (term.is_call("value")) {
    const std::vector<double> all = elements(variable(term.args[0]));
    if (all.empty() || !std::ranges::all_of(all, [&](double d) { return is_same_number(d, all[0]); }))
      does_not_fit(cat("the elements of '", to_string(term.args[0]), "' are not one number"));
    return {all[0]};
  }
  if (term.kind == Term::Kind::kCall && infix_kind(term.name)) {
    std::vector<double> left = doubles(term.args[0]);
    if (term.name == "neg") {
      for (double& d : left) d = -d;
      return left;
    }
    std::vector<double> right = doubles(term.args[1]);
    if (left.size() != right.size() && left.size() != 1 && right.size() != 1)
      does_not_fit(
          cat("the operands of '", term.name, "' have ", left.size(), " and ", right.size(), " elements"));
    std::vector<double> out(left.empty() || right.empty() ? 0 : std::max(left.size(), right.size()));
    for (size_t i = 0; i < out.size(); ++i) {
      const double a = left[left.size() == 1 ? 0 : i], b = right[right.size() == 1 ? 0 : i];
      out[i] = term.name == "+" ? a + b : term.name == "-" ? a - b : term.name == "*" ? a * b : a / b;
    }
    return out;
  }
  const Attr value = attribute(term);
  if (const auto* d = std::get_if<double>(&value)) return {*d};
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return *list;
  if (const auto* e = std::get_if<sym::Expr>(&value); e && e->is_const())
    return {static_cast<double>(e->value())};
  does_not_fit(cat("'", to_string(term), "' is not a number that is known when compiling"));
}

Attr Evaluator::attribute(const Term& term) {
  switch (term.kind) {
    case Term::Kind::kNumber:
      if (term.integer) return sym::Expr(static_cast<int64_t>(term.number));
      return term.number;
    case Term::Kind::kText: return term.name;
    case Term::Kind::kList: {
      std::vector<sym::Expr> out;
      for (const Term& arg : term.args) out.push_back(scalar(arg));
      return out;
    }
    case Term::Kind::kName:
      if (const auto bound = bindings_.attributes.find(term.name); bound != bindings_.attributes.end())
        return bound->second;
      if (is_tensor(term)) return elements(bindings_.values.at(term.name));
      if (const auto dtype = parse_dtype(term.name)) return *dtype;
      return term.name;
    case Term::Kind::kSet: does_not_fit("a set can only follow 'in'");
    case Term::Kind::kCall: break;
  }
  if (is_comparison(term.name) || term.name == "and" || term.name == "or" || term.name == "not" ||
      term.name == "in")
    return condition(term);
  if (infix_kind(term.name) || term.name == "%" || term.name == "min" || term.name == "max")
    return arithmetic(term);
  return function(term);
}

sym::Expr Evaluator::scalar(const Term& term) {
  const Attr value = attribute(term);
  if (const auto* e = std::get_if<sym::Expr>(&value)) return *e;
  if (const auto* d = std::get_if<std::vector<double>>(&value);
      d && d->size() == 1 && d->at(0) == std::trunc(d->at(0)) && std::abs(d->at(0)) < 1e15)
    return static_cast<int64_t>(d->at(0));
  does_not_fit(cat("'", to_string(term), "' is ", extend::to_string(value), ", not an integer"));
}

std::vector<sym::Expr> Evaluator::list(const Term& term) {
  const Attr value = attribute(term);
  if (const auto* list = std::get_if<std::vector<sym::Expr>>(&value)) return *list;
  if (const auto* e = std::get_if<sym::Expr>(&value)) return {*e};
  does_not_fit(cat("'", to_string(term), "' is ", extend::to_string(value), ", not a list of integers"));
}

// On integers and lists of integers: element by element, a single one with each.
Attr Evaluator::arithmetic(const Term& term) {
  const auto apply = [&](sym::Expr a, sym::Expr b) -> sym::Expr {
    if (term.name == "+") return a + b;
    if (term.name == "-") return a - b;
    if (term.name == "*") return a * b;
    if (term.name == "neg") return -a;
    if (term.name == "min") return sym::min(a, b);
    if (term.name == "max") return sym::max(a, b);
    if (b.is_const(0)) does_not_fit(cat("'", to_string(term), "' divides by zero"));
    return term.name == "/" ? sym::floordiv(a, b) : sym::mod(a, b);
  };
  std::vector<Attr> args;
  for (const Term& arg : term.args) args.push_back(attribute(arg));
  const auto real = [](const Attr& a) {
    return std::holds_alternative<double>(a) || std::holds_alternative<std::vector<double>>(a);
  };
  if (std::ranges::any_of(args, real)) {
    if (!infix_kind(term.name)) does_not_fit(cat("'", term.name, "' takes integers"));
    std::vector<double> all = doubles(term);
    if (all.size() == 1) return all[0];
    return all;
  }
  const std::vector<sym::Expr> left = list(term.args[0]),
                               right = term.args.size() > 1 ? list(term.args[1]) : std::vector<sym::Expr>{0};
  const bool scalars =
      std::ranges::all_of(args, [](const Attr& a) { return std::holds_alternative<sym::Expr>(a); });
  if (scalars) return apply(left[0], right[0]);
  if (left.size() != right.size() && left.size() != 1 && right.size() != 1)
    does_not_fit(cat("'", to_string(term), "' has lists of ", left.size(), " and ", right.size()));
  std::vector<sym::Expr> out;
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i)
    out.push_back(apply(left[left.size() == 1 ? 0 : i], right[right.size() == 1 ? 0 : i]));
  return out;
}

Attr Evaluator::function(const Term& term) {
  const auto index = [&](const Term& of, size_t size) {
    const sym::Expr e = scalar(of);
    if (!e.is_const()) does_not_fit(cat("'", to_string(of), "' is not known when compiling"));
    const int64_t i = e.value() < 0 ? e.value() + static_cast<int64_t>(size) : e.value();
    if (i < 0 || i >= static_cast<int64_t>(size))
      does_not_fit(cat("'", to_string(term), "': there is no element ", e.value(), " of ", size));
    return static_cast<size_t>(i);
  };
  const std::string& name = term.name;
  if (name == "rank") return sym::Expr(b_.rank(variable(term.args[0])));
  if (name == "dtype") return b_.dtype(variable(term.args[0]));
  if (name == "shape") return std::vector<sym::Expr>(b_.shape(variable(term.args[0])));
  if (name == "dim") {
    const graph::Shape& shape = b_.shape(variable(term.args[0]));
    return shape[index(term.args[1], shape.size())];
  }
  if (name == "size") return sym::product(b_.shape(variable(term.args[0])));
  if (name == "uses") return sym::Expr(uses ? uses(variable(term.args[0])) : 1);
  if (name == "value") return doubles(term)[0];
  if (is_measure(name)) return measure(term);
  if (name == "len") return sym::Expr(static_cast<int64_t>(list(term.args[0]).size()));
  if (name == "append") {
    std::vector<sym::Expr> out = list(term.args[0]);
    for (const sym::Expr e : list(term.args[1])) out.push_back(e);
    return out;
  }
  if (name == "at") {
    const std::vector<sym::Expr> all = list(term.args[0]);
    return all[index(term.args[1], all.size())];
  }
  if (name == "outer" || name == "inner") {
    const std::vector<sym::Expr> all = list(term.args[0]);
    const auto two = all.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(all.size(), 2));
    return name == "outer" ? std::vector<sym::Expr>(all.begin(), two)
                           : std::vector<sym::Expr>(two, all.end());
  }
  return condition(term);
}

// Of lists and tensors: for every element.
sym::Expr Evaluator::comparison(const Term& term) {
  const Attr left = attribute(term.args[0]), right = attribute(term.args[1]);
  const auto real = [](const Attr& a) {
    return std::holds_alternative<double>(a) || std::holds_alternative<std::vector<double>>(a);
  };
  if (real(left) || real(right)) {
    const std::vector<double> x = doubles(term.args[0]), y = doubles(term.args[1]);
    if (x.size() != y.size() && x.size() != 1 && y.size() != 1) return 0;
    bool holds = true;
    for (size_t i = 0; i < (x.empty() || y.empty() ? 0 : std::max(x.size(), y.size())); ++i)
      holds = holds && comparison_holds(term.name, x[x.size() == 1 ? 0 : i], y[y.size() == 1 ? 0 : i]);
    return holds ? 1 : 0;
  }
  if (left.index() >= 2 || right.index() >= 2) {  // texts and dtypes
    if (term.name != "==" && term.name != "!=") does_not_fit(cat("'", term.name, "' takes numbers"));
    return (left == right) == (term.name == "==") ? 1 : 0;
  }
  std::vector<sym::Expr> x = list(term.args[0]), y = list(term.args[1]);
  // A number is compared with each element of a list; lists of other lengths are never equal.
  if (std::holds_alternative<sym::Expr>(left)) x.assign(y.size(), x[0]);
  if (std::holds_alternative<sym::Expr>(right)) y.assign(x.size(), y[0]);
  if (x.size() != y.size()) return term.name == "!=" ? 1 : 0;
  sym::Expr all = 1;
  for (size_t i = 0; i < x.size(); ++i) all = sym::logical_and(all, comparison_of(term.name, x[i], y[i]));
  return all;
}

sym::Expr Evaluator::member(const Term& term) {
  const Term& set = term.args[1];
  if (set.kind != Term::Kind::kSet && set.kind != Term::Kind::kList)
    does_not_fit("expected a set of values after 'in', such as {64, 128}");
  const Attr value = attribute(term.args[0]);
  sym::Expr any = 0;
  for (const Term& element : set.args) {
    const Attr other = attribute(element);
    if (const auto *a = std::get_if<sym::Expr>(&value), *b = std::get_if<sym::Expr>(&other); a && b)
      any = sym::logical_or(any, sym::eq(*a, *b));
    else if (value == other)
      return 1;
  }
  return any;
}

sym::Expr Evaluator::condition(const Term& term) {
  if (term.kind != Term::Kind::kCall) return scalar(term);
  const std::string& name = term.name;
  if (is_comparison(name)) return comparison(term);
  if (name == "and") return sym::logical_and(condition(term.args[0]), condition(term.args[1]));
  if (name == "or") return sym::logical_or(condition(term.args[0]), condition(term.args[1]));
  if (name == "not") return sym::logical_not(condition(term.args[0]));
  if (name == "in") return member(term);
  if (name == "all") {
    const Attr value = attribute(term.args[0]);
    if (const auto* e = std::get_if<sym::Expr>(&value)) return *e;
    return sym::logical_and(list(term.args[0]));
  }
  if (name == "same") return variable(term.args[0]) == variable(term.args[1]) ? 1 : 0;
  if (name == "is_power_of_two" || name == "normal" || name == "finite") {
    const std::vector<double> all = doubles(term.args[0]);
    DType dtype = DType::kF32;
    const std::function<void(const Term&)> find = [&](const Term& t) {
      if (is_tensor(t)) dtype = b_.dtype(bindings_.values.at(t.name));
      for (const Term& arg : t.args) find(arg);
    };
    find(term.args[0]);
    const double most = is_float(dtype) ? largest_finite(dtype) : INFINITY;
    int exponent = 0;
    return std::ranges::all_of(all,
                               [&](double d) {
                                 if (!std::isfinite(d) || std::abs(d) > most) return false;
                                 if (name == "is_power_of_two")
                                   return d > 0 && std::frexp(d, &exponent) == 0.5;
                                 return name == "finite" || std::abs(d) >= least_normal(dtype);
                               })
               ? 1
               : 0;
  }
  if (name == "whole_but") {
    const std::vector<sym::Expr> starts = list(term.args[0]), steps = list(term.args[2]);
    const sym::Expr d = scalar(term.args[3]);
    sym::Expr all = d.is_const() ? 1 : 0;
    const std::vector<sym::Expr> extents = list(term.args[1]);
    const auto shape = term.args[1].kind == Term::Kind::kName
                           ? bindings_.attributes.find(extents_of(term.args[1].name))
                           : bindings_.attributes.end();
    if (shape == bindings_.attributes.end())
      does_not_fit(cat("'", to_string(term.args[1]), "' is not bound to the extents of a slice"));
    const auto& whole = std::get<std::vector<sym::Expr>>(shape->second);
    for (size_t i = 0; i < whole.size() && i < extents.size(); ++i)
      if (!d.is_const(static_cast<int64_t>(i))) all = sym::logical_and(all, sym::eq(extents[i], whole[i]));
    for (size_t i = 0; i < starts.size() && i < steps.size(); ++i) {
      if (!d.is_const(static_cast<int64_t>(i))) all = sym::logical_and(all, sym::eq(starts[i], 0));
      all = sym::logical_and(all, sym::eq(steps[i], 1));
    }
    return all;
  }
  return scalar(term);
}

}  // namespace stridec::extend

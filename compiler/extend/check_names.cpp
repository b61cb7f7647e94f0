#include "compiler/extend/check_names.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/base/text.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/operator_attributes.h"
#include "compiler/extend/user_operator.h"
#include "compiler/extend/vocabulary.h"

namespace stridec::extend {
namespace {

using graph::OpKind;

bool is_infix(std::string_view name) {
  static constexpr std::string_view kInfix[] = {"+", "-", "*", "/", "neg"};
  return std::ranges::count(kInfix, name) > 0;
}

}  // namespace

void TermNames::error(Position at, const std::string& what, const std::string& help) const {
  fail_(at, what, help);
  std::abort();
}

void TermNames::tensor(const Term& term, bool pattern) {
  switch (term.kind) {
    case Term::Kind::kNumber: return;
    case Term::Kind::kName:
      if (!pattern && bound.contains(term.name) && !tensors.contains(term.name)) return;
      if (bound.contains(term.name) && !tensors.contains(term.name))
        error(term.at,
              cat("'", term.name, "' is a dim or an attribute, which cannot be an operand of a match"));
      if (!tensors.contains(term.name))
        error(term.at, cat("'", term.name, "' is not declared"),
              formula ? "inputs, attributes, dims and names that are defined before it can be used"
                      : cat("declare its type: let ", term.name, ": float[...]"));
      used.insert(term.name);
      return;
    case Term::Kind::kCall: break;
    default: error(term.at, "expected a tensor");
  }
  if (is_infix(term.name) || (formula && is_comparison(term.name))) {
    for (const Term& arg : term.args) tensor(arg, pattern);
    return;
  }
  if (formula && is_number_function(term.name)) return condition(term);
  const Composite* composite = find_composite(term.name);
  const auto kind = graph::parse_op(term.name);
  if (!composite && !kind && is_own_operator(term.name)) return own_operator(term, pattern);
  if (!composite && !kind)
    error(term.at, cat("there is no operator '", term.name, "'"),
          "'stridec rules operators' lists those that there are");
  if (kind && !can_be_written(*kind))
    error(term.at, cat("'", term.name, "' cannot be in a ", formula ? "formula" : "rule",
                       ": it has an effect, a body, or data"));
  if (pattern && composite && !composite->input_of && term.name != "matmul")
    error(term.at, cat("'", term.name, "' can only be in a replacement"),
          term.name == "full_like"
              ? "a number in a match is a constant with this number: max(x, 0)"
              : "write the match with the operations that 'stridec inspect --stage=graph' shows");
  const Split parts = extend::split(term);
  if (composite)
    arity(term, parts, *composite);
  else
    known_attributes(term, parts, *kind);
  for (const Term* arg : parts.tensors) tensor(*arg, pattern);
  for (const auto& [name, value] : parts.attributes) attribute(*value, pattern);
}

void TermNames::own_operator(const Term& term, bool pattern) {
  if (formula || pattern)
    error(term.at, cat("'", term.name, "' can only be in a rule's replacement"),
          pattern ? "write the match with the operations that 'stridec inspect --stage=graph' shows" : "");
  const UserOperator* op = operators ? operators->find(declared_name(term.name)) : nullptr;
  if (!op)
    error(term.at, cat("there is no operator '", term.name, "'"),
          "operators of your own are those that the files of --ops declare");
  for (const Term& arg : term.args) tensor(arg, pattern);
  const auto name_of = [](const DeclaredAttribute& each) { return each.name; };
  for (const auto& [name, value] : term.attributes) {
    if (std::ranges::count(op->attributes, name, &DeclaredAttribute::name) == 0)
      error(value.at, cat("'", term.name, "' has no attribute '", name, "'"),
            op->attributes.empty() ? cat("'", term.name, "' has no attributes")
                                   : cat("it has ", join(op->attributes, ", ", name_of)));
    attribute(value, pattern);
  }
}

void TermNames::arity(const Term& term, const Split& parts, const Composite& composite) const {
  if (parts.tensors.size() != static_cast<size_t>(composite.tensors) ||
      term.args.size() > static_cast<size_t>(composite.tensors) + composite.parameters.size())
    error(term.at, cat("'", term.name, "' takes ", composite.tensors, " tensors",
                       composite.parameters.empty() ? std::string() : " and the arguments ",
                       join(composite.parameters, ", ", [](std::string_view p) { return std::string(p); })));
  for (const auto& [name, value] : parts.attributes)
    if (std::ranges::count(composite.parameters, name) == 0)
      error(value->at, cat("'", term.name, "' has no argument '", name, "'"));
}

void TermNames::known_attributes(const Term& term, const Split& parts, OpKind kind) const {
  const std::vector<std::string_view> known = attributes_of(kind);
  for (const auto& [name, value] : parts.attributes)
    if (std::ranges::count(known, name) == 0)
      error(value->at, cat("'", term.name, "' has no attribute '", name, "'"),
            known.empty()
                ? cat("'", term.name, "' has no attributes")
                : cat("it has ", join(known, ", ", [](std::string_view each) { return std::string(each); })));
}

// In a pattern, a name that stands for no tensor is bound to the attribute's value, or to an element of it.
void TermNames::attribute(const Term& term, bool pattern) {
  if (pattern && term.kind == Term::Kind::kName && !is_word(term.name) && !tensors.contains(term.name)) {
    bound.insert(term.name);
    return;
  }
  if (pattern && term.kind == Term::Kind::kList) {
    for (const Term& arg : term.args) attribute(arg, true);
    return;
  }
  condition(term);
}

void TermNames::condition(const Term& term) {
  if (term.kind == Term::Kind::kName && !bound.contains(term.name) && !tensors.contains(term.name) &&
      !is_word(term.name))
    error(term.at, cat("'", term.name, "' is not bound"), "dims are bound by 'let', attributes by the match");
  if (term.kind == Term::Kind::kCall && is_measure(term.name)) {
    if (!sides) error(term.at, cat("'", to_string(term), "' can only be in a rule's where and require"));
    return;
  }
  if (term.kind == Term::Kind::kCall)
    if (const std::string why = problem_of_call(term); !why.empty()) error(term.at, why);
  for (const Term& arg : term.args) condition(arg);
}

namespace {

class RuleNames {
 public:
  RuleNames(const RuleFile& file, const Rule& rule, const Operators* operators)
      : rule_(rule), terms_([&file](Position at, const std::string& what, const std::string& help) {
          rule_error(file.text, file.path, at, what, help);
        }) {
    terms_.operators = operators;
  }

  void check() {
    for (const Variable& variable : rule_.variables) {
      terms_.tensors.insert(variable.name);
      for (const Dim& dim : variable.dims)
        if (dim.kind == Dim::Kind::kName) terms_.bound.insert(dim.name);
    }
    const std::set<std::string> variables = terms_.tensors;
    define(rule_.match);
    side(rule_.match, true);
    for (const Variable& variable : rule_.variables)
      if (!terms_.used.contains(variable.name))
        terms_.error(variable.at, cat("variable '", variable.name, "' does not occur in the match"));
    terms_.tensors = variables;
    if (rule_.match.results.size() == 1) define(rule_.match);
    define(rule_.yield);
    side(rule_.yield, false);
    terms_.tensors = variables;
    define(rule_.match);
    terms_.sides = true;
    for (const Term& condition : rule_.where) terms_.condition(condition);
    for (const Requirement& each : rule_.require) terms_.condition(each.condition);
  }

 private:
  void define(const Side& side) {
    for (const auto* list : {&side.results, &side.locals})
      for (const Definition& each : *list) terms_.tensors.insert(each.names.begin(), each.names.end());
  }
  void side(const Side& side, bool pattern) {
    for (const auto* list : {&side.results, &side.locals})
      for (const Definition& each : *list) terms_.tensor(each.term, pattern);
  }

  const Rule& rule_;
  TermNames terms_;
};

}  // namespace

void check_names(const RuleFile& file, const Rule& rule, const Operators* operators) {
  RuleNames(file, rule, operators).check();
}

}  // namespace stridec::extend

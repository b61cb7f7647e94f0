// The operators and names of rules and formulas.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"

namespace stridec::extend {

// Checks terms. `error` is called with the place and the sentence, and throws.
class TermNames {
 public:
  using Fail = std::function<void(Position at, const std::string& what, const std::string& help)>;
  explicit TermNames(Fail fail) : fail_(std::move(fail)) {}

  std::set<std::string> tensors, bound;  // names of tensors; of dims and attributes
  std::set<std::string> used;            // tensors that terms have named
  bool formula = false;                  // numbers of `bound` and comparisons may be operands, as in no rule
  const Operators* operators = nullptr;  // of the user, for replacements
  bool sides = false;                    // conditions may measure the sides of a rule: cost(match)

  // `pattern`: an unbound name takes the value of the attribute in whose place it is.
  void tensor(const Term& term, bool pattern);
  void condition(const Term& term);
  [[noreturn]] void error(Position at, const std::string& what, const std::string& help = {}) const;

 private:
  void own_operator(const Term& term, bool pattern);
  void arity(const Term& term, const Split& parts, const Composite& composite) const;
  void known_attributes(const Term& term, const Split& parts, graph::OpKind kind) const;
  void attribute(const Term& term, bool pattern);

  Fail fail_;
};

// Throws like parse_rules() for unknown operators, unknown names and wrong numbers of arguments.
void check_names(const RuleFile& file, const Rule& rule, const Operators* operators);

}  // namespace stridec::extend

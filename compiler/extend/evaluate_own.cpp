// The parts of rules that take operators of the user: their calls, and what sides with such calls cost.
#include "compiler/extend/evaluate.h"
#include "compiler/extend/side_cost.h"
#include "compiler/extend/user_operator.h"

namespace stridec::extend {

using graph::ValueId;

std::vector<ValueId> Evaluator::own_operator(const Term& term, const std::vector<ValueId>& inputs,
                                             size_t results) {
  Arguments arguments;
  for (const auto& [name, value] : term.attributes) arguments[name] = attribute(value);
  return operators->build(b_, declared_name(term.name), inputs, arguments, results);
}

sym::Expr Evaluator::measure(const Term& term) const {
  return cost_of_side(b_, *rule, bindings_, operators, {term.name, term.args[0].name});
}

}  // namespace stridec::extend

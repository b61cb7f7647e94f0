// The rules of rules.h as data.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compiler/sym/facts.h"
#include "compiler/sym/pattern.h"

namespace stridec::sym {

struct Rule {
  pattern::Pattern pattern, replacement, condition;
};

const std::vector<Rule>& all_rules();
std::span<const Rule* const> rules_for(Op root);

// Applies the rule to e itself (not to its operands), if it matches and the facts prove its condition.
std::optional<Expr> apply_rule(const Rule& rule, Expr e, const Facts& facts);

}  // namespace stridec::sym

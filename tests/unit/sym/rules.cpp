// Tests each rule of rules.h separately.
#include "compiler/sym/rules.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/sym/rule_set.h"
#include "compiler/sym/text.h"
#include "tests/unit/sym/random_expr.h"

using namespace stridec;
using namespace stridec::sym;
using namespace stridec::sym::test;

namespace {

std::string shown(const pattern::Pattern& p) {
  pattern::Bindings names;
  const char* spelled[] = {"x", "y", "z", "w", "c0", "c1", "c2"};
  for (size_t i = 0; i < names.size(); ++i) names[i] = var(spelled[i]);
  return to_string(pattern::instantiate(p, names));
}

// An operand for a wildcard: a variable, or a small expression.
Expr operand(Random& random) {
  if (random.one_in(2)) return variable(static_cast<int>(random.in(0, 6)));
  return pattern::instantiate(random.tree(2), as_variables());
}

// Assumes facts that make the rule's condition true; the rule must then rewrite an instance of its pattern.
bool fires(const Rule& rule, Random& random) {
  for (int attempt = 0; attempt < 3000; ++attempt) {
    pattern::Bindings b;
    for (int i = 0; i < pattern::kWildcards; ++i) {
      b[static_cast<size_t>(i)] = i < pattern::kFirstConstant ? operand(random) : Expr(random.constant());
    }
    Facts facts;
    Expr condition = pattern::instantiate(rule.condition, b);
    if (condition.is_const(0)) continue;
    facts.assume(condition);
    Expr e = pattern::instantiate(rule.pattern, b);
    if (facts.contradictory() || e.op() != rule.pattern.op) continue;
    auto r = apply_rule(rule, e, facts);
    if (r && *r != e) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("sym rules: where its condition holds a rule keeps the value") {
  Random random(3);
  for (const Rule& rule : all_rules()) {
    INFO("rule " << shown(rule.pattern) << " -> " << shown(rule.replacement) << " if "
                 << shown(rule.condition));
    int met = 0;
    for (int round = 0; round < 6000; ++round) {
      Assignment a = random.assignment(-7, 13);
      if (random.one_in(2)) a[5] = a[4] + random.in(-1, 1);
      if (random.one_in(3)) a[5] = a[4] * random.in(-3, 3);
      auto holds = pattern::value_of(rule.condition, a);
      if (!holds || *holds == 0) continue;
      auto expected = pattern::value_of(rule.pattern, a);
      if (!expected) continue;
      ++met;
      auto actual = pattern::value_of(rule.replacement, a);
      REQUIRE_MESSAGE(actual == expected, "x=" << a[0] << " y=" << a[1] << " z=" << a[2] << " w=" << a[3]
                                               << " c0=" << a[4] << " c1=" << a[5] << " c2=" << a[6]);
    }
    CHECK_MESSAGE(met >= 20, "the condition is hardly ever met");
  }
}

TEST_CASE("sym rules: every rule fires") {
  Random random(4);
  for (const Rule& rule : all_rules()) {
    CHECK_MESSAGE(fires(rule, random), shown(rule.pattern) << " -> " << shown(rule.replacement));
  }
}

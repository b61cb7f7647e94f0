// Random expressions: compares canonical form, text, bounds, proofs and simplification with plain evaluation.
#include <doctest/doctest.h>

#include <cstdlib>

#include "compiler/base/diagnostic.h"
#include "compiler/sym/facts.h"
#include "compiler/sym/text.h"
#include "tests/unit/sym/random_expr.h"

using namespace stridec;
using namespace stridec::sym;
using namespace stridec::sym::test;

namespace {

// For more rounds and another seed: STRIDEC_FUZZ=100 STRIDEC_SEED=7 build/test_sym
uint32_t seed(uint32_t usual) {
  const char* given = std::getenv("STRIDEC_SEED");
  return given ? static_cast<uint32_t>(std::atoi(given)) : usual;
}

int rounds(int usual) {
  const char* factor = std::getenv("STRIDEC_FUZZ");
  return usual * (factor ? std::atoi(factor) : 1);
}

std::optional<Expr> built(const pattern::Pattern& tree) {
  try {
    return pattern::instantiate(tree, as_variables());
  } catch (const Error&) {
    return std::nullopt;  // a constant overflowed 64 bits
  }
}

// Facts that hold for `a`, including typical ones of loops and sizes.
Facts facts_for(const Assignment& a, Random& random, std::vector<Expr>& conditions) {
  Facts facts;
  auto know = [&](Expr condition) {
    auto value = evaluate(condition, lookup_in(a));
    if (!value) return;
    if (*value == 0) condition = logical_not(condition);
    if (condition.is_const()) return;
    facts.assume(condition);
    conditions.push_back(condition);
  };
  for (int i = 0; i < pattern::kWildcards; ++i) {
    Expr v = variable(i);
    int64_t value = a[static_cast<size_t>(i)];
    if (random.one_in(2)) know(le(value - random.in(0, 6), v));
    if (random.one_in(2)) know(le(v, value + random.in(0, 20)));
    if (random.one_in(6)) know(eq(mod(v, random.in(2, 8)), 0));
  }
  for (int i = 4; i < pattern::kWildcards; ++i) {
    auto extent = built(random.tree(2));
    auto value = extent ? evaluate(*extent, lookup_in(a)) : std::nullopt;
    Expr v = variable(i);
    bool earlier = extent && std::none_of(conditions.begin(), conditions.end(),
                                          [&](Expr c) { return depends_on(c, v); });
    for (int later = i; later < pattern::kWildcards && earlier; ++later)
      earlier = !depends_on(*extent, variable(later));
    if (!earlier || !value || a[static_cast<size_t>(i)] < 0 || a[static_cast<size_t>(i)] >= *value) continue;
    facts.set_index(v, *extent);
    conditions.push_back(lt(v, *extent));
    conditions.push_back(le(0, v));
  }
  for (int64_t extra = random.in(0, 3); extra > 0; --extra) {
    if (auto c = built(random.condition(3))) know(*c);
  }
  return facts;
}

}  // namespace

TEST_CASE("sym fuzz: the canonical form has the value of the tree, and survives text") {
  Random random(seed(1));
  for (int round = 0; round < rounds(20000); ++round) {
    auto tree = random.tree(static_cast<int>(random.in(1, 6)));
    auto e = built(tree);
    if (!e) continue;
    std::string text = to_string(*e);
    REQUIRE_MESSAGE(parse(text) == *e, text, " parses as ", to_string(parse(text)));
    for (int k = 0; k < 8; ++k) {
      Assignment a = random.assignment();
      auto expected = pattern::value_of(tree, a);
      if (!expected) continue;
      auto actual = evaluate(*e, lookup_in(a));
      REQUIRE_MESSAGE(actual == expected, text);
    }
  }
}

TEST_CASE("sym fuzz: bounds, divisors, proofs and simplification agree with evaluation") {
  Random random(seed(2));
  for (int round = 0; round < rounds(6000); ++round) {
    const Assignment base = random.assignment();
    std::vector<Expr> conditions;
    Facts facts = facts_for(base, random, conditions);
    std::string known;
    for (Expr c : conditions) known += "\n  " + to_string(c);
    REQUIRE_MESSAGE(!facts.contradictory(), known);
    std::vector<Assignment> samples{base};
    for (int k = 0; k < 12; ++k) {
      Assignment a = base;
      for (int64_t changes = random.in(1, 3); changes > 0; --changes)
        a[static_cast<size_t>(random.in(0, 6))] += random.in(-3, 3);
      bool all = true;
      for (Expr c : conditions) {
        auto v = evaluate(c, lookup_in(a));
        all &= v && *v != 0;
      }
      if (all) samples.push_back(a);
    }
    for (int k = 0; k < 4; ++k) {
      auto e = built(k % 2 == 0 ? random.tree(static_cast<int>(random.in(1, 5))) : random.condition(4));
      if (!e) continue;
      INFO("facts:" << known << "\nexpression: " << to_string(*e));
      Interval bounds = facts.bounds(*e);
      int64_t divisor = facts.known_divisor(*e);
      Answer answer = facts.prove(*e);
      Expr simple = simplify(*e, facts);
      INFO("simplified: " << to_string(simple));
      Expr again = simplify(simple, facts);
      REQUIRE_MESSAGE(again == simple, "then: " << to_string(again));
      for (const Assignment& a : samples) {
        auto v = evaluate(*e, lookup_in(a));
        if (!v) continue;
        INFO("value: " << *v);
        REQUIRE_MESSAGE(bounds.contains(*v), "bounds: " << to_string(bounds));
        REQUIRE_MESSAGE((divisor == 0 ? *v == 0 : *v % divisor == 0), "divisor: " << divisor);
        REQUIRE((answer == Answer::kUnknown || (answer == Answer::kYes) == (*v != 0)));
        REQUIRE(evaluate(simple, lookup_in(a)) == v);
      }
    }
  }
}

#include "compiler/sym/rule_set.h"

#include <array>

#include "compiler/sym/facts_state.h"
#include "compiler/sym/rebuild.h"
#include "compiler/sym/rules.h"

namespace stridec::sym {

const std::vector<Rule>& all_rules() {
  static const auto* rules = [] {
    auto* list = new std::vector<Rule>;
    for_each_rule([&](pattern::Pattern from, pattern::Pattern to, pattern::Pattern condition) {
      list->push_back({std::move(from), std::move(to), std::move(condition)});
    });
    return list;
  }();
  return *rules;
}

std::span<const Rule* const> rules_for(Op root) {
  constexpr size_t kOps = static_cast<size_t>(Op::kConst) + 1;
  static const auto* index = [] {
    auto* table = new std::array<std::vector<const Rule*>, kOps>;
    for (const Rule& r : all_rules()) (*table)[static_cast<size_t>(r.pattern.op)].push_back(&r);
    return table;
  }();
  return (*index)[static_cast<size_t>(root)];
}

std::optional<Expr> apply_rule(const Rule& rule, Expr e, const Facts& facts) {
  pattern::Bindings bindings;
  std::optional<Expr> result;
  pattern::match(rule.pattern, e, bindings, [&](std::span<const Expr> rest) {
    if (prove_directly(pattern::instantiate(rule.condition, bindings), facts) != Answer::kYes) return false;
    std::vector<Expr> args(rest.begin(), rest.end());
    args.push_back(pattern::instantiate(rule.replacement, bindings));
    result = args.size() == 1 ? args[0] : rebuild(e.op(), args);
    return true;
  });
  return result;
}

}  // namespace stridec::sym

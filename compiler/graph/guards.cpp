#include "compiler/graph/guards.h"

#include <charconv>

#include "compiler/base/text.h"

namespace stridec::graph {

void drop_implied_guards(Graph& graph, const sym::Facts& given) {
  constexpr size_t kMost = 64;  // the number of proofs is quadratic
  auto& guards = graph.guards;
  if (guards.size() > kMost) return;
  for (size_t i = guards.size(); i-- > 0;) {
    sym::Facts others = given;
    for (size_t j = 0; j < guards.size(); ++j)
      if (j != i) others.assume(guards[j].condition);
    if (sym::check(guards[i], others) == sym::Answer::kYes)
      guards.erase(guards.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::string problem_of_guard(const sym::Guard& guard) {
  constexpr size_t kMostShown = 200;
  const std::string_view s = guard.sentence;
  const std::string shown = guard.sentence.substr(0, kMostShown);
  for (size_t i = 0; i < s.size(); ++i) {
    if ((s[i] == '{' || s[i] == '}') && i + 1 < s.size() && s[i + 1] == s[i]) {
      ++i;
      continue;
    }
    if (s[i] != '{') continue;
    size_t index = 0;
    const char *begin = s.data() + i + 1, *last = s.data() + s.size();
    const auto [end, status] = std::from_chars(begin, last, index);
    if (status != std::errc() || end == last || *end != '}' || *begin == '-' || end - begin > 3 ||
        index >= guard.values.size())
      return cat("the sentence of a guard can name its ", guard.values.size(),
                 " values by {0}, {1} ..., and writes other braces as {{ and }}: '", shown, "'");
    i = static_cast<size_t>(end - s.data());
  }
  if (guard.condition.is_const(0)) return cat("a guard never holds: ", shown);
  return "";
}

}  // namespace stridec::graph

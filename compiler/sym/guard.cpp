#include "compiler/sym/guard.h"

#include "compiler/base/check.h"
#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

std::string shown(Expr value, const std::function<std::optional<int64_t>(Expr)>& lookup) {
  std::optional<int64_t> number = evaluate(value, lookup);
  if (value.is_const() || !number) return to_string(value);
  return value.is_var() ? std::to_string(*number) : to_string(value) + " = " + std::to_string(*number);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(c == '{' || c == '}' ? 2 : 1, c);
  return out;
}

Answer check(const Guard& guard, const Facts& facts) { return facts.prove(guard.condition); }

std::string render(const Guard& guard, const std::function<std::optional<int64_t>(Expr)>& lookup) {
  std::string out;
  const std::string& s = guard.sentence;
  for (size_t i = 0; i < s.size(); ++i) {
    bool doubled = i + 1 < s.size() && s[i + 1] == s[i];
    if ((s[i] == '{' || s[i] == '}') && doubled) {
      out += s[i++];
    } else if (s[i] == '{') {
      size_t index = 0, end = i + 1;
      for (; end < s.size() && s[end] >= '0' && s[end] <= '9' && index < 1000; ++end)
        index = index * 10 + (s[end] - '0');
      STRIDEC_CHECK(end < s.size() && s[end] == '}' && end > i + 1 && index < guard.values.size(), s);
      out += shown(guard.values[index], lookup);
      i = end;
    } else {
      out += s[i];
    }
  }
  return out;
}

std::string render(const Guard& guard) {
  return render(guard, [](Expr) { return std::optional<int64_t>(); });
}

}  // namespace stridec::sym

// Strings, which are known at compile time.
#include <algorithm>
#include <cctype>

#include "compiler/base/text.h"
#include "compiler/frontend/torchscript/builtins.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using Result = std::optional<Value>;

constexpr size_t kLongest = 1'000'000;

Value text_of(std::string text) {
  if (text.size() > kLongest) Evaluator::unsupported("a string of more than a million characters");
  return Value::of_string(std::move(text));
}

// "{}" stands for the next value.
Result format(const Call& c) {
  const std::string& form = c.at(0).text;
  std::string out;
  size_t next = 1;
  for (size_t i = 0; i < form.size(); ++i) {
    if (form[i] == '{' && i + 1 < form.size() && form[i + 1] == '}' && c.has(next)) {
      out += marked(c.at(next++));
      ++i;
    } else {
      out += form[i];
    }
  }
  return text_of(std::move(out));
}
// "%s" and "%d" stand for the next value.
Result percent_format(const Call& c) {
  const std::string& form = c.at(0).text;
  std::string out;
  size_t next = 1;
  for (size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '%' || i + 1 == form.size()) {
      out += form[i];
    } else if (form[++i] == '%') {
      out += '%';
    } else if (c.has(next)) {
      out += marked(c.at(next++));
    }
  }
  return text_of(std::move(out));
}
Result add(const Call& c) {
  if (!c.at(1).is(VK::kString)) return std::nullopt;
  return text_of(c.at(0).text + c.at(1).text);
}
Result multiply(const Call& c) {
  std::string out;
  const int64_t times = c.integer(1);
  for (int64_t i = 0; i < times && out.size() <= kLongest; ++i) out += c.at(0).text;
  return text_of(std::move(out));
}
Result lower(const Call& c) {
  std::string out = c.at(0).text;
  for (char& ch : out) {
    const auto u = static_cast<unsigned char>(ch);
    ch = static_cast<char>(c.name == "lower" ? std::tolower(u) : std::toupper(u));
  }
  return text_of(std::move(out));
}
Result starts_with(const Call& c) {
  const std::string &text = c.at(0).text, &part = c.at(1).text;
  return Value::of_bool(c.name == "startswith" ? text.starts_with(part) : text.ends_with(part));
}
Result strip(const Call& c) {
  std::string out = c.at(0).text;
  const std::string set = c.has(1) ? c.at(1).text : " \t\n\r\f\v";
  if (c.name != "rstrip") out.erase(0, std::min(out.find_first_not_of(set), out.size()));
  if (c.name != "lstrip") out.erase(out.find_last_not_of(set) + 1);
  return text_of(std::move(out));
}
Result replace(const Call& c) {
  if (c.at(1).text.empty()) return std::nullopt;
  return text_of(replaced(c.at(0).text, c.at(1).text, c.at(2).text));
}
Result find(const Call& c) {
  const size_t at = c.at(0).text.find(c.at(1).text);
  return Value::of_integer(at == std::string::npos ? int64_t{-1} : static_cast<int64_t>(at));
}
Result split(const Call& c) {
  if (!c.has(1) || c.at(1).text.empty()) return std::nullopt;
  std::vector<Value> out;
  std::string_view rest = c.at(0).text;
  const std::string& by = c.at(1).text;
  while (true) {
    const size_t at = rest.find(by);
    out.push_back(Value::of_string(std::string(rest.substr(0, at))));
    if (at == std::string_view::npos) return Value::list(std::move(out));
    rest.remove_prefix(at + by.size());
  }
}
Result join_items(const Call& c) {
  if (!c.at(1).sequence) return std::nullopt;
  return text_of(join(c.at(1).items(), c.at(0).text, [](const Value& v) { return v.text; }));
}
Result less(const Call& c) {
  if (!c.at(1).is(VK::kString)) return std::nullopt;
  return Value::of_bool(c.name == "lt" ? c.at(0).text < c.at(1).text : c.at(0).text > c.at(1).text);
}
Result code(const Call& c) {
  if (c.at(0).text.size() != 1) return std::nullopt;
  return Value::of_integer(static_cast<unsigned char>(c.at(0).text[0]));
}

struct Row {
  std::string_view name;
  Result (*run)(const Call& c);
};
constexpr Row kRows[] = {
    {"add", add},         {"endswith", starts_with}, {"find", find},   {"format", format},
    {"gt", less},         {"join", join_items},      {"lower", lower}, {"lstrip", strip},
    {"lt", less},         {"mul", multiply},         {"ord", code},    {"percentFormat", percent_format},
    {"replace", replace}, {"rstrip", strip},         {"split", split}, {"startswith", starts_with},
    {"strip", strip},     {"upper", lower},
};

}  // namespace

bool has_string_function(const std::string& name) {
  return std::ranges::any_of(kRows, [&](const Row& r) { return r.name == name; });
}

Result call_string(const Call& c) {
  if (c.count() == 0 || !c.at(0).is(VK::kString)) return std::nullopt;
  for (const Row& row : kRows)
    if (row.name == c.name) return row.run(c);
  return std::nullopt;
}

}  // namespace stridec::torchscript

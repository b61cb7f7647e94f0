#include "compiler/frontend/aten/schema.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "compiler/frontend/aten/all_schemas.h"

extern "C" const char stridec_embedded_aten_schemas[];
extern "C" const char stridec_embedded_aten_schemas_end[];

namespace stridec::aten {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Splits at commas outside of brackets and quotes.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0 && !quoted)) {
      if (const auto part = trim(text.substr(start, i - start)); !part.empty()) out.push_back(part);
      start = i + 1;
      continue;
    }
    if (text[i] == '"' || text[i] == '\'') quoted = !quoted;
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
  }
  return out;
}

// "Tensor(a!)[]": the type without the alias annotation, and what the annotation says.
void read_type(std::string_view text, SchemaArgument& to) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '(') {
      to.type += text[i];
      continue;
    }
    const size_t end = std::min(text.find(')', i), text.size());
    to.aliased = true;
    to.written = text.substr(i, end - i).find('!') != std::string_view::npos;
    i = end;
  }
}

struct Table {
  // Lines by "space::name.overload", sorted.
  std::vector<std::pair<std::string_view, std::string_view>> lines;
  std::mutex mutex;
  std::map<std::string_view, std::unique_ptr<Schema>> parsed;
};

Table& table() {
  static Table* const out = [] {
    auto* t = new Table;
    std::string_view text(
        stridec_embedded_aten_schemas,
        static_cast<size_t>(stridec_embedded_aten_schemas_end - stridec_embedded_aten_schemas));
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.empty() || line[0] == '#') continue;
      t->lines.emplace_back(line.substr(0, line.find('(')), line);
    }
    std::sort(t->lines.begin(), t->lines.end());
    return t;
  }();
  return *out;
}

const Schema* parsed(std::pair<std::string_view, std::string_view> line) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  auto& schema = t.parsed[line.first];
  if (!schema)
    if (auto s = parse_schema(line.second)) schema = std::make_unique<Schema>(std::move(*s));
  return schema.get();
}

}  // namespace

std::optional<Schema> parse_schema(std::string_view line) {
  const size_t open = line.find('('), arrow = line.rfind(") -> "), space = line.find("::");
  if (open == std::string_view::npos || arrow == std::string_view::npos || arrow < open ||
      space == std::string_view::npos || space > open)
    return std::nullopt;
  Schema out;
  const std::string_view name = line.substr(space + 2, open - space - 2);
  const size_t dot = name.find('.');
  out.name = std::string(name.substr(0, dot));
  if (dot != std::string_view::npos) out.overload = std::string(name.substr(dot + 1));
  bool keyword = false;
  for (std::string_view part : split(line.substr(open + 1, arrow - open - 1))) {
    if (part == "*") {
      keyword = true;
      continue;
    }
    SchemaArgument argument;
    argument.keyword = keyword;
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos) argument.default_text = std::string(trim(part.substr(equals + 1)));
    const std::string_view head = trim(part.substr(0, equals));
    const size_t blank = head.rfind(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    argument.name = std::string(head.substr(blank + 1));
    read_type(trim(head.substr(0, blank)), argument);
    out.arguments.push_back(std::move(argument));
  }
  std::string_view results = trim(line.substr(arrow + 5));
  if (results.starts_with('(') && results.ends_with(')')) results = results.substr(1, results.size() - 2);
  for (std::string_view part : split(results)) {
    SchemaArgument argument;
    const size_t blank = part.find(' ');
    read_type(part.substr(0, blank), argument);
    out.returns.push_back(argument.type);
    out.return_names.emplace_back(blank == std::string_view::npos ? "" : trim(part.substr(blank)));
  }
  return out;
}

const Schema* find_schema(std::string_view space, std::string_view name, std::string_view overload) {
  std::string key = std::string(space) + "::" + std::string(name);
  if (!overload.empty() && overload != "default") key += "." + std::string(overload);
  const auto& lines = table().lines;
  const auto found = std::lower_bound(lines.begin(), lines.end(), key,
                                      [](const auto& line, const std::string& k) { return line.first < k; });
  return found != lines.end() && found->first == key ? parsed(*found) : nullptr;
}

std::vector<const Schema*> overloads(std::string_view space, std::string_view name) {
  const std::string key = std::string(space) + "::" + std::string(name);
  std::vector<const Schema*> out;
  const auto& lines = table().lines;
  auto at = std::lower_bound(lines.begin(), lines.end(), key,
                             [](const auto& line, const std::string& k) { return line.first < k; });
  for (; at != lines.end() && at->first.starts_with(key); ++at)
    if (at->first.size() == key.size() || at->first[key.size()] == '.')
      if (const Schema* schema = parsed(*at)) out.push_back(schema);
  return out;
}

std::vector<std::pair<std::string, const Schema*>> all_schemas() {
  std::vector<std::pair<std::string, const Schema*>> out;
  for (const auto& line : table().lines)
    if (const Schema* schema = parsed(line))
      out.emplace_back(line.first.substr(0, line.first.find("::")), schema);
  return out;
}

}  // namespace stridec::aten

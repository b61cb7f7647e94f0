#include "compiler/extend/json_place.h"

#include <algorithm>
#include <cctype>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::extend {
namespace {

// A key in a JSON pointer (RFC 6901).
std::string escaped_key(std::string_view key) {
  return replaced(replaced(std::string(key), "~", "~0"), "/", "~1");
}

}  // namespace

std::string JsonPlace::place() const { return cat(file_, "#", pointer_); }

void JsonPlace::fail(const std::string& what, const std::string& help) const {
  throw Error({.kind = ErrorKind::kMalformed,
               .code = "bad-operator",
               .message = cat(place(), ": ", what),
               .where = {.file = file_},
               .help = help.empty() ? "'stridec schema ops' prints the form of the file" : help});
}

std::string JsonPlace::text() const {
  if (!value_.is_string()) fail("expected a string");
  return value_.get<std::string>();
}

std::string JsonPlace::identifier() const {
  const std::string name = text();
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
  const bool fits = !name.empty() && letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c));
  });
  if (!fits) fail(cat("'", name, "' is not a name of letters, digits and '_'"));
  return name;
}

int64_t JsonPlace::integer() const {
  if (!value_.is_number_integer()) fail("expected an integer");
  return value_.get<int64_t>();
}

double JsonPlace::number() const {
  if (!value_.is_number()) fail("expected a number");
  return value_.get<double>();
}

std::vector<JsonPlace> JsonPlace::items() const {
  if (!value_.is_array()) fail("expected an array");
  std::vector<JsonPlace> out;
  for (size_t i = 0; i < value_.size(); ++i) out.emplace_back(value_[i], file_, cat(pointer_, "/", i));
  return out;
}

std::vector<JsonPlace> JsonPlace::lines() const {
  if (value_.is_string()) return {*this};
  if (!value_.is_array()) fail("expected a text or an array of texts");
  return items();
}

std::vector<std::pair<std::string, JsonPlace>> JsonPlace::members() const {
  if (!value_.is_object()) fail("expected an object");
  std::vector<std::pair<std::string, JsonPlace>> out;
  for (const auto& [key, each] : value_.items())
    out.emplace_back(key, JsonPlace(each, file_, cat(pointer_, "/", escaped_key(key))));
  return out;
}

std::optional<JsonPlace> JsonPlace::find(const char* key) const {
  if (!value_.is_object()) fail("expected an object");
  const auto found = value_.find(key);
  if (found == value_.end()) return std::nullopt;
  return JsonPlace(*found, file_, cat(pointer_, "/", key));
}

JsonPlace JsonPlace::at(const char* key) const {
  if (auto found = find(key)) return *found;
  fail(cat("member '", key, "' is missing"));
}

void JsonPlace::allow(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, each] : members())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      each.fail(cat("unknown member '", key, "'; the members are ",
                    join(keys, ", ", [](std::string_view k) { return std::string(k); })));
}

JsonPlace::Json parse_json(const std::string& text, const std::string& file) {
  JsonPlace::Json json;
  try {
    json = JsonPlace::Json::parse(text);
  } catch (const JsonPlace::Json::exception& error) {
    JsonPlace(json, file, "").fail(cat("not valid JSON: ", error.what()));
  }
  return json;
}

}  // namespace stridec::extend

#include "compiler/frontend/pt2/json.h"

#include <limits>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::pt2 {
namespace {

constexpr int kDeepest = 400;

// The library's parser keeps its own stack, but values are destroyed recursively.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

[[noreturn]] void malformed(const std::string& message) {
  fail(ErrorKind::kMalformed, "bad-program", "the exported program is damaged: " + message,
       "save it again with torch.export.save");
}

Json parse_json(std::string_view text, const std::string& what) {
  if (is_too_deep(text)) malformed(cat(what, " is nested deeper than ", kDeepest, " levels"));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& e) {
    malformed(cat(what, " is not JSON: ", e.what()));
  }
}

const Json& member(const Json& object, const char* key) {
  object_of(object, key);
  const auto found = object.find(key);
  if (found == object.end()) malformed(cat("'", key, "' is missing"));
  return *found;
}

const Json* optional_member(const Json& object, const char* key) {
  object_of(object, key);
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& array_of(const Json& value, const char* what) {
  if (!value.is_array()) malformed(cat("'", what, "' is not a list"));
  return value;
}
const Json& object_of(const Json& value, const char* what) {
  if (!value.is_object()) malformed(cat("'", what, "' is not in an object"));
  return value;
}
std::string string_of(const Json& value, const char* what) {
  if (!value.is_string()) malformed(cat("'", what, "' is not a string"));
  return value.get<std::string>();
}
int64_t integer_of(const Json& value, const char* what) {
  if (!value.is_number_integer()) malformed(cat("'", what, "' is not an integer"));
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return INT64_MAX;
  return value.get<int64_t>();
}
double number_of(const Json& value, const char* what) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  malformed(cat("'", what, "' is not a number"));
}
bool bool_of(const Json& value, const char* what) {
  if (!value.is_boolean()) malformed(cat("'", what, "' is neither true nor false"));
  return value.get<bool>();
}

Union union_of(const Json& value, const char* what) {
  if (!value.is_object() || value.size() != 1)
    malformed(cat("'", what, "' is not an object with one member"));
  return {value.begin().key(), value.begin().value()};
}

}  // namespace stridec::pt2

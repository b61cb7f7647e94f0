#include "compiler/package/read_manifest.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

extern "C" const char stridec_embedded_manifest_schema[], stridec_embedded_manifest_schema_end[];

namespace stridec::package {
namespace {

using Json = nlohmann::ordered_json;

const Json& schema() {
  static const Json parsed =
      Json::parse(stridec_embedded_manifest_schema, stridec_embedded_manifest_schema_end);
  return parsed;
}

// The subset of JSON Schema 2020-12 that the manifest's schema uses. Returns the error, "" if there is none.
// Drops object keys that the schema does not define.
class Checker {
 public:
  std::string check(const Json& rule, Json& value, const std::string& at) const {
    if (const auto ref = rule.find("$ref"); ref != rule.end())
      return check(schema().at(Json::json_pointer(ref->get<std::string>().substr(1))), value, at);
    if (const auto alternatives = rule.find("oneOf"); alternatives != rule.end()) {
      const bool fits = std::any_of(alternatives->begin(), alternatives->end(),
                                    [&](const Json& one) { return check(one, value, at).empty(); });
      return fits ? "" : at + " has none of the allowed forms";
    }
    if (rule.contains("const") && value != rule["const"]) return at + " has a value that is not allowed";
    if (rule.contains("type") && !has_type(rule["type"], value))
      return cat(at, " is not of the type ", rule["type"].dump());
    if (rule.contains("minimum") && value < rule["minimum"]) return at + " is too small";
    std::string wrong;
    if (value.is_array() && rule.contains("items"))
      for (size_t i = 0; i < value.size() && wrong.empty(); ++i)
        wrong = check(rule["items"], value[i], cat(at, "[", i, "]"));
    return value.is_object() && wrong.empty() ? check_object(rule, value, at) : wrong;
  }

 private:
  std::string check_object(const Json& rule, Json& value, const std::string& at) const {
    for (const Json& key : rule.value("required", Json::array()))
      if (!value.contains(key.get<std::string>())) return cat(at, " lacks ", key.dump());
    const Json none = Json::object();
    const Json known = rule.value("properties", none), others = rule.value("additionalProperties", none);
    Json kept = Json::object();
    for (auto& [key, inner] : value.items()) {
      const auto property = known.find(key);
      if (property == known.end() && (!others.is_object() || others.empty())) continue;
      const std::string wrong = check(property == known.end() ? others : *property, inner, at + "." + key);
      if (!wrong.empty()) return wrong;
      kept[key] = std::move(inner);
    }
    value = std::move(kept);
    return "";
  }

  static bool has_type(const Json& type, const Json& value) {
    if (type.is_array())
      return std::any_of(type.begin(), type.end(), [&](const Json& one) { return has_type(one, value); });
    const auto& name = type.get_ref<const std::string&>();
    if (name == "object") return value.is_object();
    if (name == "array") return value.is_array();
    if (name == "string") return value.is_string();
    if (name == "null") return value.is_null();
    if (name == "integer") return value.is_number_integer();
    STRIDEC_CHECK(name == "number", name);
    return value.is_number();
  }
};

// Limits nesting, because the manifest is walked recursively. A valid one is less deep.
constexpr int kDepth = 32;

}  // namespace

Json read_manifest(std::string_view text, const std::string& file) {
  bool deep = false;
  const auto look = [&](int depth, Json::parse_event_t, Json&) {
    deep |= depth > kDepth;
    return !deep;
  };
  Json manifest = Json::parse(text, look, false);
  std::string wrong = deep                      ? "it is nested too deep"
                      : manifest.is_discarded() ? "it is not JSON"
                                                : Checker().check(schema(), manifest, "the manifest");
  if (wrong.empty() && !manifest["schema_version"].get_ref<const std::string&>().starts_with("1."))
    wrong = cat("its version is ", manifest["schema_version"].dump(), "; this stridec reads 1");
  if (!wrong.empty())
    fail(ErrorKind::kMalformed, "bad-manifest",
         cat("'", file, "' does not hold a manifest of stridec: ", wrong));
  return manifest;
}

std::vector<Json> functions_of(const Json& manifest) {
  const auto several = manifest.find("functions");
  if (several == manifest.end() || several->empty()) return {manifest};
  return {several->begin(), several->end()};
}

}  // namespace stridec::package

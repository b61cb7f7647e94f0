// A value of a JSON file together with its place, for errors that name it.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::extend {

class JsonPlace {
 public:
  using Json = nlohmann::ordered_json;
  JsonPlace(const Json& value, std::string file, std::string pointer)
      : value_(value), file_(std::move(file)), pointer_(std::move(pointer)) {}

  const Json& value() const { return value_; }
  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }
  std::string place() const;  // "acme.json#/operators/0"

  // Throws Error kMalformed, code "bad-operator": "acme.json#/operators/0: `what`".
  [[noreturn]] void fail(const std::string& what, const std::string& help = {}) const;

  // Throw if the value has another type, or a member is missing.
  std::string text() const;
  std::string identifier() const;  // [A-Za-z_][A-Za-z0-9_]*
  int64_t integer() const;
  double number() const;
  std::vector<JsonPlace> items() const;                            // of an array
  std::vector<JsonPlace> lines() const;                            // of an array of texts, or the text itself
  std::vector<std::pair<std::string, JsonPlace>> members() const;  // of an object
  JsonPlace at(const char* key) const;
  std::optional<JsonPlace> find(const char* key) const;
  void allow(std::initializer_list<std::string_view> keys) const;  // no other members

 private:
  const Json& value_;
  std::string file_, pointer_;
};

// Parses the text of a file. Throws Error kMalformed like fail().
JsonPlace::Json parse_json(const std::string& text, const std::string& file);

}  // namespace stridec::extend

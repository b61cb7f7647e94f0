// Checked accessors for JSON values. Each throws Error kMalformed, which names the key, for a wrong type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stridec::pt2 {

using Json = nlohmann::json;

// Throws Error kMalformed for text that is not JSON or that is nested deeper than programs are.
Json parse_json(std::string_view text, const std::string& what);

[[noreturn]] void malformed(const std::string& message);

const Json& member(const Json& object, const char* key);           // required
const Json* optional_member(const Json& object, const char* key);  // null if absent or null
const Json& array_of(const Json& value, const char* what);
const Json& object_of(const Json& value, const char* what);
std::string string_of(const Json& value, const char* what);
int64_t integer_of(const Json& value, const char* what);
double number_of(const Json& value, const char* what);  // also "Infinity", "-Infinity", "NaN"
bool bool_of(const Json& value, const char* what);

// A union is an object with one member.
struct Union {
  const std::string& tag;
  const Json& value;
};
Union union_of(const Json& value, const char* what);

}  // namespace stridec::pt2

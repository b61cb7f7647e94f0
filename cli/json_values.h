// Values of JSON that someone else may have written: where a key is missing or has another type, the value is
// empty.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace stridec::cli {

inline std::string text_at(const nlohmann::ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// 0 also where the number is not finite.
inline double number_at(const nlohmann::ordered_json& json, const char* key) {
  const auto found = json.find(key);
  const double value = found != json.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(value) ? value : 0;
}

}  // namespace stridec::cli

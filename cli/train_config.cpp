#include "cli/train_config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/suggest.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/train/optimizers.h"
#include "compiler/train/settings.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  fail(ErrorKind::kUsage, "bad-train", cat("--train-config: '", key, "' ", why),
       "'stridec schema train' prints the form of the file");
}

bool is_optimizer_setting(std::string_view key) {
  return std::ranges::any_of(train::optimizers(), [&](const train::Optimizer& optimizer) {
    return std::ranges::count(optimizer.settings, key, &train::Setting::name) > 0;
  });
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  const auto add = [&](std::span<const train::Setting> settings) {
    for (const train::Setting& setting : settings)
      if (std::ranges::count(keys, setting.name) == 0) keys.emplace_back(setting.name);
  };
  add(train::common_settings());
  for (const train::Loss& loss : train::losses()) add(loss.settings);
  for (const train::Optimizer& optimizer : train::optimizers()) add(optimizer.settings);
  return keys;
}

// The shortest text that parses to the number.
std::string number_text(const Json& value) {
  if (value.is_number_integer()) return value.dump();
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value.get<double>()).ptr};
}

std::string scalar_text(const std::string& key, const Json& value) {
  if (value.is_number()) return number_text(value);
  if (value.is_boolean())
    return is_optimizer_setting(key) ? (value.get<bool>() ? "1" : "0") : value.get<bool>() ? "true" : "false";
  if (!value.is_string()) refuse(key, "is neither a text nor a number");
  const auto text = value.get<std::string>();
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == ',' && depth == 0) refuse(key, cat("is '", text, "', which has a comma"));
  }
  if (text.empty() || depth != 0) refuse(key, cat("is '", text, "'"));
  return text;
}

// A text, or a list of texts.
std::string list_text(const std::string& key, const Json& value, const char* between) {
  if (!value.is_array()) return scalar_text(key, value);
  std::string out;
  for (const Json& each : value) out += cat(out.empty() ? "" : between, scalar_text(key, each));
  if (out.empty()) refuse(key, "is an empty list");
  return out;
}

// {"match": [...], NAME: number, ...} as PATTERN|...(NAME=number,...).
std::string matched_text(const std::string& key, const Json& value, const char* patterns) {
  if (!value.is_object() || !value.contains(patterns)) refuse(key, cat("has no '", patterns, "'"));
  std::string settings;
  for (const auto& [name, number] : value.items()) {
    if (name == patterns) continue;
    if (!number.is_number() && !number.is_boolean()) refuse(cat(key, ".", name), "is not a number");
    settings += cat(settings.empty() ? "" : ",", name, "=",
                    number.is_boolean() ? std::to_string(number.get<bool>()) : number_text(number));
  }
  return cat(list_text(cat(key, ".", patterns), value[patterns], "|"), "(", settings, ")");
}

std::string item_text(const std::string& key, const Json& value) {
  if (key == "group") {
    if (!value.is_array()) refuse(key, "is not a list");
    return join(value, ",",
                [&](const Json& group) { return cat("group=", matched_text(key, group, "match")); });
  }
  if (key == "lora") return cat("lora=", matched_text(key, value, "targets"));
  if (key == "functions") return cat(key, "=", list_text(key, value, "+"));
  if (key == "trainable" || key == "freeze") return cat(key, "=", list_text(key, value, "|"));
  return cat(key, "=", scalar_text(key, value));
}

std::string settings_text(const Json& json) {
  if (!json.is_object())
    fail(ErrorKind::kMalformed, "bad-train-config", "the file is not a JSON object",
         "'stridec schema train' prints its form");
  const std::vector<std::string> known = known_keys();
  std::string out;
  for (const auto& [key, value] : json.items()) {
    if (key == "$schema") continue;
    if (std::ranges::count(known, key) == 0)
      fail(ErrorKind::kUsage, "bad-train", cat("--train-config: there is no setting '", key, "'"),
           cat(did_you_mean(key, known), "'stridec schema train' prints the form of the file"));
    if (const std::string text = item_text(key, value); !text.empty())
      out += cat(out.empty() ? "" : ",", text);
  }
  return out;
}

}  // namespace

std::string read_train_config(const std::string& path) {
  const std::string text = read_file(path);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return settings_text(json);
  } catch (Error& error) {
    error.diagnostic.where.file = path;
    throw;
  }
}

}  // namespace stridec::cli

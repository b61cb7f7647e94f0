// The tokens of a file of rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/extend/rule.h"

namespace stridec::extend {

struct RuleToken {
  enum class Kind { kName, kNumber, kText, kSign, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
  Position at;
  size_t begin = 0, end = 0;  // in the file
};

bool starts_rule_name(char c);

// In order; the last one is of kEnd. Throws Error that names the place in the file at `path`.
std::vector<RuleToken> rule_tokens(std::string_view text, const std::string& path);

}  // namespace stridec::extend

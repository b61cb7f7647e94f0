// Options of a compilation, `-O name=value`: the table of options, and the values that the user gave.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace stridec {

struct OptionInfo {
  std::string_view name;
  std::string_view values;     // "true|false"
  std::string_view initially;  // the default, or what determines it
  std::string_view meaning;
};

class Options {
 public:
  Options() = default;
  explicit Options(std::map<std::string, std::string> given) : given_(std::move(given)) {}

  // The value of a true|false option; `otherwise` if the user did not give it.
  bool flag(std::string_view name, bool otherwise) const {
    const auto found = given_.find(std::string(name));
    return found == given_.end() ? otherwise : found->second == "true";
  }
  const std::map<std::string, std::string>& given() const { return given_; }

 private:
  std::map<std::string, std::string> given_;
};

}  // namespace stridec

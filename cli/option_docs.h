// The options of a command as data: for --help, shell completion and manual pages.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace stridec::cli {

struct OptionDoc {
  std::vector<std::string> names;    // "-o", "--output"; of a positional its name
  std::string value;                 // "FILE", "{text,json}"; "": a flag
  std::vector<std::string> choices;  // if the value is one of few
  std::string help;                  // with the default
  std::string group;
  bool positional = false, required = false, repeated = false;
};

// In the order of declaration; positionals first.
std::vector<OptionDoc> options_of(const CLI::App& app);

struct EnvironmentVariable {
  std::string name, meaning;
};
const std::vector<EnvironmentVariable>& environment_variables();

}  // namespace stridec::cli

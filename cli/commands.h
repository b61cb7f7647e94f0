// The table of commands, and the command line that is made from it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace stridec::cli {

std::span<const Command> commands();

// The parser of all commands, and the variables that it sets.
struct CommandLine {
  std::unique_ptr<CLI::App> app;
  Globals globals;
  std::string chosen;  // the command's name
  std::function<int()> action;

  CommandLine();
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
};

// Parses arguments (without the program's name). Returns false if the arguments ask for help or the version,
// which has then been printed. Throws Error (kUsage).
bool parse(CommandLine& line, const std::vector<std::string>& arguments);

}  // namespace stridec::cli

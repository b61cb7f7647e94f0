// ops, modes, options, passes, targets, exit-codes: what this build can do, printed from its own tables.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "compiler/base/target.h"
#include "compiler/compile.h"
#include "compiler/frontend/import.h"

namespace stridec::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// The first row names the columns.
int print(const Rows& rows, const Globals& globals) {
  if (!globals.json) {
    std::printf("%s", table(rows).c_str());
    return 0;
  }
  nlohmann::ordered_json json = nlohmann::json::array();
  for (size_t i = 1; i < rows.size(); ++i) {
    nlohmann::ordered_json row;
    for (size_t c = 0; c < rows[i].size(); ++c) row[rows[0][c]] = rows[i][c];
    json.push_back(std::move(row));
  }
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

}  // namespace

std::function<int()> declare_ops(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"operator", "versions"}};
    for (const auto& [name, versions] : frontend::supported_operators()) rows.push_back({name, versions});
    return print(rows, globals);
  };
}

std::function<int()> declare_modes(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"mode", "meaning"}};
    for (const Mode& mode : modes()) rows.push_back({std::string(mode.name), std::string(mode.meaning)});
    return print(rows, globals);
  };
}

std::function<int()> declare_options(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"option", "values", "default", "meaning"}};
    for (const OptionInfo& o : options())
      rows.push_back(
          {std::string(o.name), std::string(o.values), std::string(o.initially), std::string(o.meaning)});
    return print(rows, globals);
  };
}

std::function<int()> declare_passes(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"pass", "stage", "meaning"}};
    for (const PassInfo& pass : pass_table())
      rows.push_back({std::string(pass.name), std::string(pass.stage), std::string(pass.summary)});
    return print(rows, globals);
  };
}

std::function<int()> declare_targets(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"target", "kind", "here"}};
    for (const CpuTarget& target : cpu_targets())
      rows.push_back({target.name, "cpu", target.name == cpu_target("native").name ? "this machine" : ""});
    return print(rows, globals);
  };
}

std::function<int()> declare_exit_codes(CLI::App&, const Globals& globals) {
  return [&globals] {
    Rows rows = {{"code", "name", "meaning"}};
    for (const ExitCode& code : exit_codes())
      rows.push_back({std::to_string(code.code), std::string(code.name), std::string(code.meaning)});
    return print(rows, globals);
  };
}

}  // namespace stridec::cli

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/output.h"
#include "compiler/base/text.h"
#include "compiler/frontend/import.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

Json problem_json(const Diagnostic& d) {
  return {{"code", d.code},           {"message", d.message}, {"node", d.where.node}, {"op", d.where.op},
          {"tensor", d.where.tensor}, {"notes", d.notes},     {"help", d.help}};
}

int exit_code(const std::vector<Diagnostic>& problems) {
  return problems.empty() ? 0 : static_cast<int>(problems.front().kind);
}

void print_text(const std::string& file, const frontend::Imported& imported) {
  std::printf("%s  %s\n", file.c_str(), imported.summary.c_str());
  std::string symbols;
  for (const auto& symbol : imported.graph.symbols) {
    if (!symbols.empty()) symbols += "; ";
    symbols += symbol.var.name() + " " + sym::to_string(imported.graph.facts.bounds(symbol.var));
    if (symbol.input < 0) symbols += " (known only during a run)";
  }
  if (!symbols.empty()) std::printf(" symbols    %s\n", symbols.c_str());
  for (const auto& guard : imported.graph.guards) std::printf(" guard      %s\n", guard.sentence.c_str());
  std::printf(" problems   %s\n",
              imported.problems.empty() ? "none" : std::to_string(imported.problems.size()).c_str());
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < imported.problems.size(); ++i) {
    const Diagnostic& d = imported.problems[i];
    rows.push_back({std::to_string(i + 1), d.code, d.where.node,
                    d.message + (d.help.empty() ? "" : " (" + d.help + ")")});
  }
  std::printf("%s", table(rows, "   ").c_str());
}

int run(const CompileFlags& flags, const Globals& globals) {
  const CompileOptions options = flags.options();
  const auto imported = frontend::import_file(options.model, {.dims = options.dims});
  if (globals.json) {
    Json json = {{"file", options.model},
                 {"summary", imported.summary},
                 {"problems", Json::array()},
                 {"symbols", Json::array()}};
    for (const auto& d : imported.problems) json["problems"].push_back(problem_json(d));
    for (const auto& symbol : imported.graph.symbols)
      json["symbols"].push_back(
          {{"name", symbol.var.name()}, {"range", sym::to_string(imported.graph.facts.bounds(symbol.var))}});
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    print_text(options.model, imported);
    if (!imported.problems.empty()) std::printf("exit code %d\n", exit_code(imported.problems));
  }
  return exit_code(imported.problems);
}

}  // namespace

std::function<int()> declare_check(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<CompileFlags>();
  flags->declare(app);
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli

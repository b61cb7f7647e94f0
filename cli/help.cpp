#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "cli/option_docs.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr size_t kMostColumns = 100, kColumn = 28;

size_t width() { return std::min(columns(), kMostColumns); }

// "  left      right", the right part wrapped; on the next line where the left part is long.
std::string row(const std::string& left, const std::string& right) {
  std::string text = "  " + left;
  if (text.size() + 2 > kColumn)
    text += "\n" + std::string(kColumn, ' ');
  else
    text.resize(kColumn, ' ');
  return text + wrapped(right, kColumn, kColumn, width()) + "\n";
}

std::string left_of(const OptionDoc& doc) {
  std::string names = join(doc.names, ", ");
  if (doc.value.empty() || doc.positional) return names;
  return cat(names, " ", doc.value);
}

std::string usage(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at; at = at->get_parent()) names.insert(names.begin(), at->get_name());
  std::string text = cat("Usage: ", join(names, " "));
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  if (!subs.empty() && app.get_parent() == nullptr) return text + " COMMAND [options] [@FILE]\n";
  text += " [options]";
  for (const OptionDoc& doc : options_of(app)) {
    if (!doc.positional) continue;
    const std::string name = cat(doc.names[0], doc.repeated ? "..." : "");
    text += doc.required ? " " + name : cat(" [", name, "]");
  }
  return text + "\n";
}

std::string options(const CLI::App& app) {
  const std::vector<OptionDoc> docs = options_of(app);
  std::string text;
  std::vector<std::string> groups;
  for (const OptionDoc& doc : docs) {
    const std::string group = doc.positional ? "Arguments" : doc.group;
    if (std::ranges::count(groups, group) == 0) groups.push_back(group);
  }
  // What is common to all commands comes last.
  for (const char* last : {"Output", "Options"})
    if (const auto found = std::ranges::find(groups, last); found != groups.end())
      std::rotate(found, found + 1, groups.end());
  for (const std::string& group : groups) {
    text += cat("\n", group, ":\n");
    for (const OptionDoc& doc : docs)
      if ((doc.positional ? "Arguments" : doc.group) == group) text += row(left_of(doc), doc.help);
  }
  return text;
}

std::string subcommands(const CLI::App& app) {
  std::vector<std::string> groups;
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subs)
    if (std::ranges::count(groups, sub->get_group()) == 0) groups.push_back(sub->get_group());
  std::string text;
  for (const std::string& group : groups) {
    text += cat("\n", group, ":\n");
    for (const CLI::App* sub : subs)
      if (sub->get_group() == group) text += row(sub->get_name(), sub->get_description());
  }
  return text;
}

}  // namespace

std::string help_text(const CLI::App& app) {
  std::string text = wrapped(app.get_description(), 0, 0, width()) + "\n\n" + usage(app);
  text += subcommands(app) + options(app);
  if (const std::string examples = app.get_footer(); !examples.empty()) {
    text += "\nExamples:\n";
    std::istringstream lines(examples);
    for (std::string line; std::getline(lines, line);) text += cat("  ", line, "\n");
  }
  if (app.get_parent() == nullptr) {
    text += "\nEnvironment variables:\n";
    for (const EnvironmentVariable& variable : environment_variables())
      text += row(variable.name, variable.meaning);
    text +=
        "\n'stridec COMMAND --help' lists the options of a command. @FILE stands for the words in a file.\n";
  }
  return text;
}

}  // namespace stridec::cli

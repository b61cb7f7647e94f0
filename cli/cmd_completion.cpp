// completion, man and help: prints shell completion, manual pages and help, generated from the declared
// options.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/help.h"
#include "cli/option_docs.h"
#include "cli/suggest.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  return {all.begin(), all.end()};
}

std::string subcommand_names(const CLI::App& app) {
  return join(subcommands(app), " ", [](const CLI::App* sub) { return sub->get_name(); });
}

// ---- shells ----

std::string bash(const CLI::App& root) {
  std::string text =
      cat("# bash completion of stridec\n_stridec() {\n  local cur=${COMP_WORDS[COMP_CWORD]} "
          "previous=${COMP_WORDS[COMP_CWORD-1]}\n  COMPREPLY=()\n"
          "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '",
          subcommand_names(root), " --help --version' -- \"$cur\"))\n    return\n  fi\n",
          "  case ${COMP_WORDS[1]}:$previous in\n");
  for (const CLI::App* sub : subcommands(root))
    for (const OptionDoc& doc : options_of(*sub))
      if (!doc.choices.empty() && !doc.positional)
        text += cat(
            "    ",
            join(doc.names, "|", [&](const std::string& name) { return cat(sub->get_name(), ":", name); }),
            ") COMPREPLY=($(compgen -W '", join(doc.choices, " "), "' -- \"$cur\")); return ;;\n");
  text += "  esac\n  local words=\n  case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* sub : subcommands(root)) {
    std::vector<std::string> options, values;
    for (const OptionDoc& doc : options_of(*sub)) {
      if (!doc.positional) options.insert(options.end(), doc.names.begin(), doc.names.end());
      if (doc.positional) values.insert(values.end(), doc.choices.begin(), doc.choices.end());
    }
    for (const CLI::App* inner : subcommands(*sub)) values.push_back(inner->get_name());
    text += cat("    ", sub->get_name(), ")\n      words='", join(options, " "), "'\n");
    if (!values.empty()) text += cat("      [[ $cur == -* ]] || words='", join(values, " "), "'\n");
    text += "      ;;\n";
  }
  return text +
         "  esac\n  [[ $cur == -* || -n $words && $words != -* ]] && "
         "COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _stridec stridec\n";
}

// Text between single quotes for zsh and fish, without what zsh's _arguments reads as syntax.
std::string quoted(std::string text, bool for_arguments) {
  text = replaced(text, "'", for_arguments ? "" : "\\'");
  if (for_arguments)
    for (char& c : text)
      if (c == '[' || c == ']' || c == ':') c = ' ';
  return text;
}

std::string zsh(const CLI::App& root) {
  std::string text = "#compdef stridec\n_stridec() {\n  local -a commands\n  commands=(\n";
  for (const CLI::App* sub : subcommands(root))
    text += cat("    '", sub->get_name(), ":", quoted(sub->get_description(), true), "'\n");
  text +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $name in\n";
  for (const CLI::App* sub : subcommands(root)) {
    text += cat("    ", sub->get_name(), ")\n      _arguments");
    for (const OptionDoc& doc : options_of(*sub)) {
      if (doc.positional) continue;
      for (const std::string& name : doc.names) {
        text += cat(" \\\n        '", doc.repeated ? "*" : "", name, "[", quoted(doc.help, true), "]");
        if (!doc.choices.empty())
          text += cat(":value:(", join(doc.choices, " "), ")");
        else if (!doc.value.empty())
          text += cat(":", quoted(doc.value, true), ":_files");
        text += "'";
      }
    }
    text += cat(" \\\n        '*:file:_files'\n      ;;\n");
  }
  return text + "  esac\n}\ncompdef _stridec stridec\n";
}

std::string fish(const CLI::App& root) {
  std::string text = "# fish completion of stridec\n";
  for (const CLI::App* sub : subcommands(root))
    text += cat("complete -c stridec -n __fish_use_subcommand -f -a ", sub->get_name(), " -d '",
                quoted(sub->get_description(), false), "'\n");
  for (const CLI::App* sub : subcommands(root))
    for (const OptionDoc& doc : options_of(*sub)) {
      if (doc.positional) continue;
      text += cat("complete -c stridec -n '__fish_seen_subcommand_from ", sub->get_name(), "'");
      for (const std::string& name : doc.names)
        text += name.starts_with("--") ? cat(" -l ", name.substr(2)) : cat(" -s ", name.substr(1));
      if (!doc.choices.empty())
        text += cat(" -x -a '", join(doc.choices, " "), "'");
      else if (!doc.value.empty())
        text += " -r";
      text += cat(" -d '", quoted(doc.help, false), "'\n");
    }
  return text;
}

// ---- manual pages ----

// Text for troff: backslashes, hyphens, and a control character at the start of a line.
std::string roff(const std::string& text) {
  std::string out = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

std::string roff_option(const OptionDoc& doc) {
  const std::string names =
      join(doc.names, ", ", [](const auto& name) { return cat("\\fB", roff(name), "\\fR"); });
  const std::string value = doc.value.empty() || doc.positional ? "" : cat(" \\fI", roff(doc.value), "\\fR");
  return cat(".TP\n", names, value, "\n", roff(doc.help), "\n");
}

std::string section(const std::string& name) { return cat(".SH ", name, "\n"); }

std::string manual_of_command(const CLI::App& app) {
  const std::string name = cat("stridec-", app.get_name());
  std::string text = cat(".TH ", name, " 1 \"\" \"stridec ", STRIDEC_VERSION, "\"\n", section("NAME"),
                         roff(name), " \\- ", roff(app.get_description()), "\n", section("SYNOPSIS"),
                         ".B stridec ", roff(app.get_name()), "\n[options]");
  for (const OptionDoc& doc : options_of(app))
    if (doc.positional)
      text += cat(doc.required ? " " : " [", "\\fI", roff(doc.names[0]), "\\fR", doc.repeated ? "..." : "",
                  doc.required ? "" : "]");
  text += "\n" + section("OPTIONS");
  for (const OptionDoc& doc : options_of(app)) text += roff_option(doc);
  for (const CLI::App* sub : subcommands(app)) {
    text += cat(".SS ", roff(app.get_name()), " ", roff(sub->get_name()), "\n", roff(sub->get_description()),
                "\n");
    for (const OptionDoc& doc : options_of(*sub)) text += roff_option(doc);
  }
  if (!app.get_footer().empty()) text += cat(section("EXAMPLES"), ".nf\n", roff(app.get_footer()), "\n.fi\n");
  return text + cat(section("SEE ALSO"), ".BR stridec (1)\n");
}

std::string manual(const CLI::App& root) {
  std::string text = cat(".TH stridec 1 \"\" \"stridec ", STRIDEC_VERSION, "\"\n", section("NAME"),
                         "stridec \\- compiles trained models to shared libraries that need only libc\n",
                         section("SYNOPSIS"), ".B stridec\n\\fICOMMAND\\fR [options] [@\\fIFILE\\fR]\n",
                         section("COMMANDS"));
  for (const CLI::App* sub : subcommands(root))
    text += cat(".TP\n\\fB", roff(sub->get_name()), "\\fR\n", roff(sub->get_description()), "\n");
  text += section("EXIT STATUS");
  for (const ExitCode& code : exit_codes())
    text += cat(".TP\n", code.code, "\n", roff(std::string(code.meaning)), "\n");
  text += section("ENVIRONMENT");
  for (const EnvironmentVariable& variable : environment_variables())
    text += cat(".TP\n.B ", variable.name, "\n", roff(variable.meaning), "\n");
  return text;
}

// Throws Error if there is none of this name.
const CLI::App& command_of(const CLI::App& root, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* sub : subcommands(root)) {
    if (sub->get_name() == name) return *sub;
    names.push_back(sub->get_name());
  }
  fail(ErrorKind::kUsage, "usage", cat("there is no command '", name, "'"),
       cat(did_you_mean(name, names), "'stridec --help' lists the commands"));
}

int print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

std::function<int()> declare_completion(CLI::App& app, const Globals&) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [shell, &app] {
    const CLI::App& root = *app.get_parent();
    return print(*shell == "bash" ? bash(root) : *shell == "zsh" ? zsh(root) : fish(root));
  };
}

std::function<int()> declare_man(CLI::App& app, const Globals&) {
  struct Flags {
    std::string command, folder;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("command", flags->command, "the command; without it, the page of the program");
  app.add_option("--folder", flags->folder,
                 "write all pages into files of this folder: stridec.1, stridec-compile.1, ...")
      ->type_name("FOLDER");
  return [flags, &app] {
    const CLI::App& root = *app.get_parent();
    if (!flags->folder.empty()) {
      write_file(flags->folder + "/stridec.1", manual(root));
      for (const CLI::App* sub : subcommands(root))
        write_file(cat(flags->folder, "/stridec-", sub->get_name(), ".1"), manual_of_command(*sub));
      return 0;
    }
    return print(flags->command.empty() ? manual(root) : manual_of_command(command_of(root, flags->command)));
  };
}

std::function<int()> declare_help(CLI::App& app, const Globals&) {
  auto command = std::make_shared<std::string>();
  app.add_option("command", *command, "the command; without it, the help of the program");
  return [command, &app] {
    const CLI::App& root = *app.get_parent();
    return print(help_text(command->empty() ? root : command_of(root, *command)));
  };
}

}  // namespace stridec::cli

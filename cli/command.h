// A subcommand: its flags and what it does. main.cpp lists them all.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace stridec::cli {

// Flags that every command has.
struct Globals {
  bool markdown = false;               // --format=md, for commands that support it
  std::string diagram;                 // dot, svg or html: --format of commands that draw; "": none
  bool json = false;                   // --format=json: results as one JSON document on stdout
  std::vector<std::string> arguments;  // of the program: the command and what follows it
  bool quiet = false;                  // only errors on stderr, and no report on stdout
  std::string progress = "auto";       // auto | plain | json | none
};

struct Command {
  std::string_view name, group, summary;
  // Declares the flags. The returned action runs after parsing and returns the exit code.
  std::function<int()> (*declare)(CLI::App& app, const Globals& globals);
  std::string_view examples = {};  // lines
  bool markdown = false;           // supports --format=md
  bool diagrams = false;           // supports --format=dot and --format=svg
};

std::function<int()> declare_compile(CLI::App& app, const Globals& globals);
std::function<int()> declare_check(CLI::App& app, const Globals& globals);
std::function<int()> declare_inspect(CLI::App& app, const Globals& globals);
std::function<int()> declare_run(CLI::App& app, const Globals& globals);
std::function<int()> declare_verify(CLI::App& app, const Globals& globals);
std::function<int()> declare_bench(CLI::App& app, const Globals& globals);
std::function<int()> declare_profile(CLI::App& app, const Globals& globals);
std::function<int()> declare_report(CLI::App& app, const Globals& globals);
std::function<int()> declare_tune(CLI::App& app, const Globals& globals);
std::function<int()> declare_train(CLI::App& app, const Globals& globals);
std::function<int()> declare_export(CLI::App& app, const Globals& globals);
std::function<int()> declare_rules(CLI::App& app, const Globals& globals);
std::function<int()> declare_refit(CLI::App& app, const Globals& globals);
std::function<int()> declare_diff(CLI::App& app, const Globals& globals);
std::function<int()> declare_ops(CLI::App& app, const Globals& globals);
std::function<int()> declare_gradients(CLI::App& app, const Globals& globals);
std::function<int()> declare_modes(CLI::App& app, const Globals& globals);
std::function<int()> declare_options(CLI::App& app, const Globals& globals);
std::function<int()> declare_passes(CLI::App& app, const Globals& globals);
std::function<int()> declare_precisions(CLI::App& app, const Globals& globals);
std::function<int()> declare_targets(CLI::App& app, const Globals& globals);
std::function<int()> declare_backends(CLI::App& app, const Globals& globals);
std::function<int()> declare_losses(CLI::App& app, const Globals& globals);
std::function<int()> declare_optimizers(CLI::App& app, const Globals& globals);
std::function<int()> declare_exit_codes(CLI::App& app, const Globals& globals);
std::function<int()> declare_licenses(CLI::App& app, const Globals& globals);
std::function<int()> declare_cache(CLI::App& app, const Globals& globals);
std::function<int()> declare_schema(CLI::App& app, const Globals& globals);
std::function<int()> declare_help(CLI::App& app, const Globals& globals);
std::function<int()> declare_completion(CLI::App& app, const Globals& globals);
std::function<int()> declare_man(CLI::App& app, const Globals& globals);

}  // namespace stridec::cli

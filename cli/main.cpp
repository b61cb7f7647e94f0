// stridec: an ahead-of-time model compiler. Parses the command line, runs one command, and converts errors to
// messages and exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/exit_owner.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/version.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr Command kCommands[] = {
    {"compile", "compile a model to one shared library and its manifest", declare_compile},
    {"check", "list everything that stands in the way of compiling a model", declare_check},
    {"inspect", "show a model, an artifact or a manifest, at any stage", declare_inspect},
    {"run", "run an artifact on .npy files", declare_run},
    {"verify", "compare an artifact with the reference interpreter, or with given outputs", declare_verify},
    {"bench", "time an artifact, whole and by kernel", declare_bench},
    {"tune", "measure schedules into a tuning database; show, merge, prune it", declare_tune},
    {"refit", "write an artifact with other weights, without compiling", declare_refit},
    {"diff", "say what changed between two artifacts", declare_diff},
    {"ops", "list ONNX operators: versions and dtypes that this build compiles", declare_ops, true},
    {"modes", "list the optimisation modes", declare_modes},
    {"options", "list the -O options", declare_options},
    {"passes", "list the passes that --dump-after and --stop-after name", declare_passes},
    {"precisions", "list what each primitive operation computes in under --precision", declare_precisions},
    {"targets", "list the CPUs and GPUs this build compiles for", declare_targets},
    {"exit-codes", "list the exit codes", declare_exit_codes},
    {"licenses", "print the licenses of this program, or of what an artifact contains", declare_licenses},
};

int report(const Error& error, const Globals& globals, const std::string& command) {
  own_exit();
  const int code = static_cast<int>(error.diagnostic.kind);
  print_error(error.diagnostic, globals);
  if (command == "compile") note("nothing was written", globals);
  return code;
}

int report_usage(std::string message, int argc, char** argv, Globals globals) {
  const std::string first = argc > 1 ? argv[1] : "";
  const bool known = std::any_of(std::begin(kCommands), std::end(kCommands),
                                 [&](const Command& command) { return command.name == first; });
  if (!known) message = first.empty() ? "a command is needed" : cat("there is no command '", first, "'");
  for (int i = 1; i < argc; ++i) globals.json |= std::string_view(argv[i]) == "--format=json";
  const Error error({.kind = ErrorKind::kUsage,
                     .code = "usage",
                     .message = message,
                     .help = known ? cat("'stridec ", first, " --help' lists what it takes")
                                   : "'stridec --help' lists the commands"});
  return report(error, globals, "");
}

int run(int argc, char** argv) {
  CLI::App app{"stridec " STRIDEC_VERSION ": compiles trained models to shared libraries that need only libc",
               "stridec"};
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.failure_message(CLI::FailureMessage::help);
  Globals globals;
  std::function<int()> action;
  std::string chosen;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    sub->add_option_function<std::string>(
           "--format",
           [&globals](const std::string& format) {
             globals.json = format == "json";
             globals.markdown = format == "md";
           },
           command.markdown ? "text, json or md (a page of Markdown)" : "text or json")
        ->check(command.markdown ? CLI::IsMember({"text", "json", "md"}) : CLI::IsMember({"text", "json"}));
    sub->add_flag("-q,--quiet", globals.quiet, "print errors alone");
    sub->add_option("--progress", globals.progress, "auto, plain, json or none")
        ->check(CLI::IsMember({"auto", "plain", "json", "none"}));
    auto act = command.declare(*sub, globals);
    sub->callback([&action, &chosen, act, name = std::string(command.name)] { action = act, chosen = name; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report_usage(error.what(), argc, argv, globals);
  }
  try {
    const int code = action();
    own_exit();
    finish_output();
    return code;
  } catch (const Error& error) {
    return report(error, globals, chosen);
  } catch (const std::bad_alloc&) {
    return report(Error({.kind = ErrorKind::kOverBudget,
                         .code = "out-of-memory",
                         .message = "memory ran out",
                         .where = {.file = named_work()}}),
                  globals, chosen);
  } catch (const std::exception& error) {
    return report(Error({.kind = ErrorKind::kInternal, .code = "internal", .message = error.what()}), globals,
                  chosen);
  }
}

}  // namespace
}  // namespace stridec::cli

int main(int argc, char** argv) {
  stridec::cli::handle_interrupts();
  return stridec::cli::run(argc, argv);
}

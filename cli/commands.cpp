#include "cli/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>

#include "cli/checks.h"
#include "cli/help.h"
#include "cli/suggest.h"
#include "cli/version.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr std::string_view kModels = "Models", kArtifacts = "Artifacts", kTables = "What this build can do",
                           kOwn = "This program";

constexpr Command kCommands[] = {
    {"compile", kModels, "compile a model to one shared library and its manifest", declare_compile,
     "stridec compile model.onnx -o model.so\n"
     "stridec compile bert.onnx -o bert.so --dim batch=1..64,sequence=1..512\n"
     "stridec compile model.onnx -o model.so --cpu x86-64-v2,x86-64-v3,x86-64-v4\n"
     "stridec compile model.onnx -o model.so --target cpu,cuda --gpu sm_90a,ptx\n"
     "stridec compile --function prefill=a.onnx --function decode=b.onnx -o llm.so"},
    {"check", kModels, "list everything that stands in the way of compiling a model", declare_check,
     "stridec check model.onnx\n"
     "stridec check model.onnx --dim batch=8,sequence=128"},
    {"inspect", kModels, "show a model, an artifact or a manifest, at any stage", declare_inspect,
     "stridec inspect model.so\n"
     "stridec inspect model.onnx --stage=schedule\n"
     "stridec inspect model.onnx --stage=source --kernel 1\n"
     "stridec inspect model.onnx --stage=fused --format=svg > model.svg",
     false, true},
    {"report", kModels, "write what is known of a model or an artifact as one HTML page", declare_report,
     "stridec report model.onnx -o report.html\n"
     "stridec report model.so -o report.html"},
    {"tune", kModels, "measure schedules into a tuning database; show, merge, prune it", declare_tune,
     "stridec tune model.onnx --tune-db tuned.txt --tune-seconds 120\n"
     "stridec tune model.onnx --tune-shape batch=1,sequence=128\n"
     "stridec tune show tuned.txt"},
    {"rules", kModels, "check rewrite rules of your own, or list the operators that they can name",
     declare_rules,
     "stridec rules check acme.rules\n"
     "stridec rules operators"},
    {"run", kArtifacts, "run an artifact on .npy and .npz files", declare_run,
     "stridec run model.so --input x=x.npy --output y=y.npy\n"
     "stridec run model.so --random --dim batch=2"},
    {"verify", kArtifacts, "compare an artifact with the reference interpreter, or with given outputs",
     declare_verify,
     "stridec verify model.onnx model.so --dim batch=2,sequence=37\n"
     "stridec verify model.onnx -i x=x.npy --expect y=y.npy"},
    {"bench", kArtifacts, "time an artifact, whole and by kernel", declare_bench,
     "stridec bench model.so --dim batch=1,sequence=128 --threads 2\n"
     "stridec bench old.so --compare new.so"},
    {"profile", kArtifacts, "show where an artifact's time goes, by kernel, node or scope; write a trace",
     declare_profile,
     "stridec profile model.so --dim batch=1,sequence=128\n"
     "stridec profile model.so --group node --sort p99\n"
     "stridec profile model.so --trace trace.json"},
    {"train", kArtifacts, "train an artifact that was compiled with --train, on .npy and .npz files",
     declare_train,
     "stridec compile net.onnx -o net.so --train loss=cross_entropy,logits=y,labels=t,optimizer=adamw\n"
     "stridec train net.so --data x=images.npy --data t=labels.npy --steps 100 --save run.safetensors\n"
     "stridec train net.so --data all.npz --steps 100 --resume run.safetensors --save run.safetensors"},
    {"export", kModels, "write an ONNX model with the weights that a training reached", declare_export,
     "stridec export net.onnx --state run.safetensors -o tuned.onnx"},
    {"refit", kArtifacts, "write an artifact with other weights, without compiling", declare_refit,
     "stridec refit model.so --parameters new.safetensors -o new.so"},
    {"diff", kArtifacts, "say what changed between two artifacts", declare_diff,
     "stridec diff old.so new.so"},
    {"licenses", kArtifacts, "print the licenses of this program, or of what an artifact contains",
     declare_licenses, "stridec licenses model.so"},
    {"ops", kTables, "list ONNX operators: versions and dtypes that this build compiles", declare_ops,
     "stridec ops Conv MatMul", true},
    {"gradients", kTables, "list how each primitive operation is differentiated", declare_gradients,
     "stridec gradients max conv", true},
    {"modes", kTables, "list the optimisation modes", declare_modes},
    {"options", kTables, "list the -O options", declare_options},
    {"passes", kTables, "list the passes that --dump-after and --stop-after name", declare_passes},
    {"precisions", kTables, "list what each primitive operation computes in under --precision",
     declare_precisions},
    {"targets", kTables, "list the CPUs and GPUs this build compiles for", declare_targets},
    {"backends", kTables, "list what computes each operation on each kind of device, and why not faster",
     declare_backends, "stridec backends dot_general sort"},
    {"losses", kTables, "list the losses of --train, with their settings", declare_losses},
    {"optimizers", kTables, "list the optimizers of --train, with their settings", declare_optimizers},
    {"exit-codes", kTables, "list the exit codes", declare_exit_codes},
    {"schema", kTables, "print the schema of a manifest or of another file", declare_schema,
     "stridec schema manifest"},
    {"cache", kOwn, "show, clear or limit the cache of compiled kernels", declare_cache,
     "stridec cache\n"
     "stridec cache limit 2GB\n"
     "stridec cache clear"},
    {"help", kOwn, "print the help of the program, or of a command", declare_help, "stridec help compile"},
    {"completion", kOwn, "print shell completion for bash, zsh or fish", declare_completion,
     "source <(stridec completion bash)\n"
     "stridec completion fish > ~/.config/fish/completions/stridec.fish"},
    {"man", kOwn, "print the manual page of the program, or of a command", declare_man,
     "stridec man compile | man -l -"},
};

// CLI11 gives an option that may be repeated every following word. It takes one value each time instead, so
// that options and positionals may have any order.
void take_one_value_each(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->nonpositional()) option->allow_extra_args(false);
  for (CLI::App* sub : app.get_subcommands({})) take_one_value_each(*sub);
}

void declare_globals(CLI::App& sub, const Command& command, Globals& globals) {
  sub.option_defaults()->always_capture_default();
  sub.option_defaults()->group("Output");
  sub.set_help_flag("-h,--help", "print this text");
  sub.add_option_function<std::string>(
         "--format",
         [&globals](const std::string& format) {
           globals.json = format == "json";
           globals.markdown = format == "md";
           globals.diagram = format == "dot" || format == "svg" || format == "html" ? format : "";
         },
         command.markdown   ? "text, json or md (a page of Markdown)"
         : command.diagrams ? "text or json; of --stage=graph, fused, schedule and memory also svg or html, "
                              "and but for memory dot (Graphviz)"
                            : "text or json")
      ->check(command.markdown   ? CLI::IsMember({"text", "json", "md"})
              : command.diagrams ? CLI::IsMember({"text", "json", "dot", "svg", "html"})
                                 : CLI::IsMember({"text", "json"}));
  sub.add_flag("-q,--quiet", globals.quiet,
               "print nothing but errors, and the results that other options ask for, such as --format=json");
  sub.add_option("--progress", globals.progress, "how the progress of long work is reported, on stderr")
      ->check(CLI::IsMember({"auto", "plain", "json", "none"}));
  sub.option_defaults()->group("Options");
}

// Names of the long options, as they are written, without those of subcommands.
std::vector<std::string> own_long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names = own_long_options(app);
  for (const CLI::App* sub : app.get_subcommands({}))
    for (std::string& name : long_options(*sub)) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

// The commands that have a long option of this name.
std::string commands_with(const CLI::App& app, const std::string& option) {
  std::vector<std::string> found;
  for (const CLI::App* sub : app.get_subcommands({}))
    if (std::ranges::count(long_options(*sub), option) > 0) found.push_back(sub->get_name());
  return join(found, ", ");
}

[[noreturn]] void usage(std::string message, std::string help) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "usage",
               .message = std::move(message),
               .where = {},
               .notes = {},
               .help = std::move(help)});
}

// The text between two others, if the whole is one of them, it and the other.
std::optional<std::string> between(const std::string& text, std::string_view before, std::string_view after) {
  if (!text.starts_with(before) || !text.ends_with(after) || text.size() < before.size() + after.size())
    return std::nullopt;
  return text.substr(before.size(), text.size() - before.size() - after.size());
}

// CLI11's sentence about the value of an option, in ours.
std::string plain_sentence(const std::string& raw) {
  if (const auto inner = between(raw, "Could not convert: ", "")) {
    const size_t equals = inner->find(" = ");
    if (equals == std::string::npos) return raw;
    const std::string value = inner->substr(equals + 3);
    const bool number = zero_or_more(value).empty() || above_zero("-" + value).empty();
    return cat(inner->substr(0, equals), ": '", value, "' is not a ",
               number ? "whole number in its range" : "number");
  }
  const size_t colon = raw.find(": ");
  if (colon == std::string::npos) return raw;
  const std::string option = raw.substr(0, colon), rest = raw.substr(colon + 2);
  const size_t required = rest.find(" required ");
  if (const auto inner = between(rest, "", " missing"); inner && required != std::string::npos) {
    const std::string count = rest.substr(0, required), form = inner->substr(required + 10);
    return cat(option, " needs ", count == "1" ? "a value" : count + " values", ": ", form);
  }
  const size_t set = rest.find(" not in {");
  if (const auto inner = between(rest, "", "}"); inner && set != std::string::npos) {
    std::string choices = inner->substr(set + 9);
    for (size_t at = 0; (at = choices.find(',', at)) != std::string::npos; at += 2)
      choices.insert(at + 1, " ");
    return cat(option, ": there is no '", rest.substr(0, set), "', only ", choices);
  }
  return raw;
}

// Throws the usage Error for arguments that CLI11 refused with this message.
[[noreturn]] void refuse(const CLI::App& app, const std::vector<std::string>& arguments,
                         const CLI::ParseError& error) {
  const std::string first = arguments.empty() ? "" : arguments[0];
  const auto names = command_names();
  if (std::ranges::count(names, first) == 0) {
    if (first.empty()) usage("no command is given", "'stridec --help' lists the commands");
    if (first[0] == '-')
      usage(cat("unknown option '", first, "' in front of the command"),
            cat(did_you_mean(first, own_long_options(app)),
                "name the command first: stridec COMMAND [options]; 'stridec --help' lists the commands"));
    usage(cat("there is no command '", first, "'"),
          cat(did_you_mean(first, names), "'stridec --help' lists the commands"));
  }
  const std::string lists = cat("'stridec ", first, " --help' lists what it takes");
  std::vector<std::string> extra = app.remaining(true);
  std::erase(extra, "--");
  const std::vector<std::string> before(arguments.begin(), std::ranges::find(arguments, "--"));
  const auto option = std::ranges::find_if(extra, [&](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && std::ranges::count(before, word) > 0;
  });
  if (option != extra.end()) {
    const std::string name = option->substr(0, option->find('='));
    const std::string guess = did_you_mean(name, long_options(*app.get_subcommand(first)));
    const std::string others = guess.empty() ? commands_with(app, name) : "";
    usage(cat("unknown option '", name, "'"),
          cat(guess, others.empty() ? "" : cat("it is an option of ", others, "; "), lists));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !extra.empty())
    usage(cat("unexpected argument '", extra[0], "'"), lists);
  usage(plain_sentence(error.what()), lists);
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

CommandLine::CommandLine()
    : app(std::make_unique<CLI::App>("stridec " STRIDEC_VERSION
                                     ": compiles trained models to shared libraries that need only libc",
                                     "stridec")) {
  app->require_subcommand(1);
  app->set_help_flag("-h,--help", "print this text");
  app->set_version_flag("--version", version_text(),
                        "print the versions of this program and of what it writes");
  app->formatter_fn([](const CLI::App* of, std::string, CLI::AppFormatMode) { return help_text(*of); });
  for (const Command& command : kCommands) {
    CLI::App* sub = app->add_subcommand(std::string(command.name), std::string(command.summary));
    sub->group(std::string(command.group));
    sub->footer(std::string(command.examples));
    declare_globals(*sub, command, globals);
    auto act = command.declare(*sub, globals);
    for (CLI::App* inner : sub->get_subcommands({})) inner->group("Subcommands")->footer("");
    sub->callback([this, act, name = std::string(command.name)] { action = act, chosen = name; });
  }
  take_one_value_each(*app);
}

CommandLine::~CommandLine() = default;

namespace {

// CLI11 ends a command at '--' if all its positionals have a value, also where the last one takes several.
// Words behind '--' that do not begin with '-' mean the same without it, unless they may name a subcommand.
std::vector<std::string> without_mark(const CLI::App& app, std::vector<std::string> arguments) {
  const auto mark = std::ranges::find(arguments, "--");
  if (mark == arguments.end() || mark == arguments.begin()) return arguments;
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const bool has_subcommands = std::ranges::any_of(commands, [&](const CLI::App* command) {
    return command->get_name() == arguments[0] && !command->get_subcommands({}).empty();
  });
  const bool plain =
      std::none_of(mark + 1, arguments.end(), [](const std::string& word) { return word.starts_with('-'); });
  if (plain && !has_subcommands) arguments.erase(mark);
  return arguments;
}

}  // namespace

bool parse(CommandLine& line, const std::vector<std::string>& arguments) {
  line.globals.arguments = arguments;
  try {
    std::vector<std::string> words = without_mark(*line.app, arguments);
    std::ranges::reverse(words);
    line.app->parse(std::move(words));
    return true;
  } catch (const CLI::Success& success) {
    // CLI11 prints to std::cout, whose errors are not watched.
    std::ostringstream text;
    line.app->exit(success, text, text);
    std::fputs(text.str().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    for (const std::string& argument : arguments) line.globals.json |= argument == "--format=json";
    refuse(*line.app, arguments, error);
  }
}

}  // namespace stridec::cli

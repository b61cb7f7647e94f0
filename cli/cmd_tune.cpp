#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/trace_folder.h"
#include "cli/tuning_report.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using tune::Entry;

struct Flags {
  CompileFlags common;
  std::vector<std::string> files;
  std::string output;
  bool all_compilers = false;
  CLI::App *show, *merge, *prune;
};

std::string gain_of(const Entry& entry) {
  if (entry.microseconds <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", entry.default_microseconds / entry.microseconds);
  return text;
}

Json json_of(const Entry& entry) {
  Json json = {{"kernel", entry.kernel},
               {"structure", entry.key.structure},
               {"shape", entry.key.shape},
               {"target", entry.key.target},
               {"threads", entry.key.threads},
               {"compiler", entry.key.compiler},
               {"microseconds", entry.microseconds},
               {"default_microseconds", entry.default_microseconds},
               {"noise_percent", entry.noise_percent},
               {"schedules_tried", entry.tried},
               {"schedule", entry.schedule}};
  if (!entry.key.device.empty()) json["device"] = entry.key.device;
  return json;
}

// An entry, and the measurements made for it in this run.
Json json_of(const tune::Tuned& kernel) {
  Json json = json_of(kernel.entry);
  if (kernel.origin != tune::Tuned::Origin::kMeasured) return json;
  json["trials"] = Json::array();
  for (const tune::Trial& trial : kernel.trials) {
    json["trials"].push_back({{"schedule", trial.schedule},
                              {"family", trial.family},
                              {"expected_ratio", trial.expected},
                              {"ratios", trial.ratios}});
    if (!trial.problem.empty()) json["trials"].back()["problem"] = trial.problem;
  }
  return json;
}

int print_entries(const std::vector<Entry>& entries, const Globals& globals) {
  if (globals.json) {
    Json json = Json::array();
    for (const Entry& entry : entries) json.push_back(json_of(entry));
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"time", "default", "gain", "tried", "shape", "target", "threads", "kernel", "schedule"}};
  for (const Entry& entry : entries)
    rows.push_back(
        {human_seconds(entry.microseconds * 1e-6), human_seconds(entry.default_microseconds * 1e-6),
         gain_of(entry), std::to_string(entry.tried), entry.key.shape, machine_of(entry.key),
         entry.key.is_gpu() ? "-" : std::to_string(entry.key.threads), entry.kernel, entry.schedule});
  std::printf("%s", table(rows).c_str());
  return 0;
}

std::string database_of(const Flags& flags) {
  if (!flags.files.empty()) return flags.files[0];
  return flags.common.tune_db.empty() ? tune::default_database() : flags.common.tune_db;
}

int merge(const Flags& flags, const Globals& globals) {
  tune::Contents all;
  for (const std::string& file : flags.files) {
    const tune::Database database(file, true);
    const auto& [entries, learned, extensions] = database.contents();
    all.entries.insert(all.entries.end(), entries.begin(), entries.end());
    all.learned.insert(all.learned.end(), learned.begin(), learned.end());
    all.extensions.insert(all.extensions.end(), extensions.begin(), extensions.end());
  }
  const tune::Contents kept = tune::merged(all);
  write_file(flags.output, tune::file_text(kept));
  note(cat(flags.output, ": ", kept.entries.size(), " entries of ", all.entries.size()), globals);
  return 0;
}

int prune(const Flags& flags, const Globals& globals) {
  const std::string file = database_of(flags);
  const tune::Database database(file, true);
  tune::Contents kept = tune::merged(database.contents());
  if (!flags.all_compilers) {
    const auto other = [](const auto& each) { return each.key.compiler != this_compiler_of(each.key); };
    std::erase_if(kept.entries, other);
    std::erase_if(kept.learned, other);
  }
  write_file(file, tune::file_text(kept));
  const size_t before = database.entries().size();
  note(cat(file, ": ", before - kept.entries.size(), " of ", before, " entries dropped"), globals);
  return 0;
}

int fill(const Flags& flags, const Globals& globals) {
  if (flags.common.model.empty() && flags.common.functions.empty())
    fail(ErrorKind::kUsage, "usage", "no model is given, nor one of show, merge, prune",
         "'stridec tune --help' lists what it takes");
  ProgressPrinter progress(globals);
  CompileOptions options = flags.common.options(globals);
  options.mode = "max-autotune";
  options.progress = [&progress](std::string_view stage, int64_t done, int64_t total, std::string_view what) {
    progress.update(stage, done, total, what);
  };
  const auto start = std::chrono::steady_clock::now();
  const TraceFolder trace(options, flags.common.traced(), globals);
  const Compilation made = compile(options, Stage::kSchedule);
  trace.write(made, Stage::kSchedule);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const FunctionResult& function : made.functions)
    for (const Diagnostic& warning : function.warnings) progress.line("warning", warning_text(warning));
  if (const std::string& problem = made.main().gpu_problem; !problem.empty())
    fail(ErrorKind::kToolchain, "no-gpu", cat("nothing was measured for --target cuda: ", problem),
         "run 'stridec tune' on a machine with such a GPU; its database replays anywhere, with --tune-db");
  std::vector<Entry> entries;
  for (const tune::Tuned* kernel : tuned_of(made)) {
    if (kernel->origin != tune::Tuned::Origin::kDefault) entries.push_back(kernel->entry);
    for (const tune::Trial& trial : kernel->trials)
      if (!trial.problem.empty())
        progress.line("tuning", cat(kernel->entry.kernel, ": ", trial.problem, ": ", trial.schedule));
  }
  progress.line("tuned", tuning_text(made, seconds, database_of(flags)));
  if (globals.quiet && !globals.json) return 0;
  if (!globals.json) return print_entries(entries, globals);
  Json json = Json::array();
  for (const tune::Tuned* kernel : tuned_of(made))
    if (kernel->origin != tune::Tuned::Origin::kDefault) json.push_back(json_of(*kernel));
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace

std::function<int()> declare_tune(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  flags->common.declare(app);
  app.require_subcommand(0, 1);
  flags->show =
      app.add_subcommand("show", "list the entries of a tuning database: for each key the one that is used");
  flags->show
      ->add_option("file", flags->files, "the database (default: the one of --tune-db, or this user's)")
      ->expected(0, 1);
  flags->merge = app.add_subcommand("merge", "write one database out of several, sorted, each key once");
  flags->merge
      ->add_option("files", flags->files,
                   "databases; of entries with equal keys the one that tried more candidates is kept")
      ->required();
  flags->merge->add_option("-o,--output", flags->output, "the file to write")->required()->type_name("FILE");
  flags->prune =
      app.add_subcommand("prune", "drop entries that others replace, and those of other compilers");
  flags->prune->add_option("file", flags->files, "the database, as for show")->expected(0, 1);
  flags->prune->add_flag("--all-compilers", flags->all_compilers,
                         "keep entries of other versions of stridec");
  for (CLI::App* sub : {flags->show, flags->merge, flags->prune}) sub->fallthrough();
  return [flags, &globals] {
    if (flags->show->parsed())
      return print_entries(tune::Database(database_of(*flags), true).held(), globals);
    if (flags->merge->parsed()) return merge(*flags, globals);
    if (flags->prune->parsed()) return prune(*flags, globals);
    return fill(*flags, globals);
  };
}

}  // namespace stridec::cli

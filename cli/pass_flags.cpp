#include "cli/pass_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/compile_flags.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/extensions.h"
#include "compiler/pipeline.h"

namespace stridec::cli {
namespace {

void expect_pass(const std::string& name) {
  if (is_extension_row(name)) return;
  const Pipeline pipeline = default_pipeline();
  try {
    find_pass(pipeline, name);
  } catch (Error& error) {
    std::vector<std::string> names;
    for (const Pass& pass : pipeline) names.emplace_back(pass.name);
    error.diagnostic.help = cat(did_you_mean(name, names), error.diagnostic.help);
    throw;
  }
}

// "04-fusion.txt"; for a pass that runs once per variant "07-memory.znver4.txt".
std::string file_name(const PassDump& dump) {
  const std::string number = (dump.ordinal < 10 ? "0" : "") + std::to_string(dump.ordinal);
  return cat(number, "-", dump.name, dump.variant.empty() ? "" : ".", dump.variant, ".txt");
}

}  // namespace

void PassFlags::declare(CLI::App& app) {
  app.option_defaults()->group("Passes");
  app.add_option("--dump-after", dump_after,
                 "print the program after these passes: name,name or all, see 'stridec passes'")
      ->type_name("LIST");
  app.add_option("--dump-dir", dump_folder, "write what --dump-after prints to files of this folder")
      ->type_name("FOLDER");
  app.add_option("--stop-after", stop_after, "compile up to this pass and write no artifact")
      ->type_name("PASS");
  app.add_flag("--time-passes", times, "print how long every pass took");
  app.add_flag("--verify-passes", verify,
               "check the program's rules after every pass, not after every stage");
  app.option_defaults()->group("Options");
}

PassOptions PassFlags::options(const Globals& globals, std::vector<PassDump>* dumps) const {
  PassOptions made;
  made.verify_each |= verify;
  made.dump_after = split_list(dump_after);
  made.stop_after = stop_after;
  for (const auto& name : made.dump_after)
    if (name != "all") expect_pass(name);
  if (!stop_after.empty()) expect_pass(stop_after);
  if (!dump_folder.empty()) {
    if (dump_after.empty())
      fail(ErrorKind::kUsage, "nothing-to-dump", "--dump-dir needs --dump-after",
           "name passes, or all of them: --dump-after=all");
    std::error_code error;
    if (!std::filesystem::is_directory(dump_folder, error))
      fail(ErrorKind::kUnreadable, "no-folder", cat("the folder '", dump_folder, "' does not exist"),
           "create it first");
  }
  made.dump = [folder = dump_folder, json = globals.json, dumps](const PassDump& dump) {
    if (!folder.empty())
      write_file((std::filesystem::path(folder) / file_name(dump)).string(), dump.text);
    else if (json)
      dumps->push_back(dump);
    else
      std::printf("// ---- %s\n%s", file_name(dump).c_str(), dump.text.c_str());
  };
  return made;
}

void print_times(const std::vector<PassTime>& times) {
  double all = 0;
  std::vector<std::vector<std::string>> rows = {{"stage", "pass", "runs", "time", "verifying"}};
  for (const PassTime& t : times) {
    all += t.seconds + t.verifying;
    rows.push_back({std::string(t.stage), std::string(t.name), std::to_string(t.runs),
                    human_seconds(t.seconds), t.verifying == 0 ? "" : human_seconds(t.verifying)});
  }
  rows.push_back({"all", "", "", human_seconds(all), ""});
  std::printf("%s", table(rows).c_str());
}

nlohmann::ordered_json times_as_json(const std::vector<PassTime>& times) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PassTime& t : times)
    rows.push_back({{"stage", t.stage},
                    {"pass", t.name},
                    {"runs", t.runs},
                    {"seconds", t.seconds},
                    {"verifying_seconds", t.verifying}});
  return rows;
}

}  // namespace stridec::cli

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/manifest_file.h"
#include "cli/output.h"
#include "cli/pass_flags.h"
#include "cli/report_compare.h"
#include "cli/report_data.h"
#include "cli/report_measured.h"
#include "cli/report_page.h"
#include "cli/trace_folder.h"
#include "cli/written_files.h"
#include "compiler/base/file_hash.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/package/read_manifest.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  CompileFlags common;
  std::string output, compared, profile, trace, sources = "all";
  bool time_passes = false;
};

// Whether the file is an artifact or a manifest, by its first bytes.
bool is_artifact(const std::string& path) {
  char bytes[16] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(bytes, sizeof bytes);
  const std::string_view text(bytes, static_cast<size_t>(file.gcount()));
  const size_t first = text.find_first_not_of(" \t\r\n");
  return text.starts_with(
             "\x7f"
             "ELF") ||
         (first != std::string_view::npos && text[first] == '{');
}

Json functions_of_artifact(const std::string& path, const std::vector<std::string>& names) {
  const Json manifest = package::read_manifest(read_manifest_text(path), path);
  Json functions = Json::array();
  for (const Json& function : package::functions_of(manifest))
    if (names.empty() || std::ranges::count(names, function["name"].get<std::string>()) > 0)
      functions.push_back(report_of(function));
  if (functions.empty())
    fail(ErrorKind::kUsage, "unknown-function", cat("the artifact has no function '", names.front(), "'"),
         "'stridec inspect' lists them");
  return functions;
}

// Where the page's data go: report.json beside report.html, m.report.json beside m.html, since m.json is the
// manifest of m.so. "": the page goes to a device or a pipe.
std::string data_path(const std::string& page) {
  const std::filesystem::path path = page;
  if (!path.has_extension() || std::filesystem::is_other(path)) return "";
  const bool named = path.stem().string().ends_with("report");
  return (path.parent_path() / cat(path.stem().string(), named ? ".json" : ".report.json")).string();
}

// Fails before the work where the page or its data would replace a file that is read.
void check_page(const Flags& flags, const std::vector<std::string>& inputs) {
  check_outputs({{flags.output, "the page", "choose another name: --output report.html"},
                 {data_path(flags.output), "the page's data", "choose another name: --output report.html"}},
                inputs);
  check_extension(flags.output, "the page", {".html", ".htm"}, "--output report.html");
}

// Sets "functions", and "passes" if they are asked for.
void add_model(Json& report, const Flags& flags, const Globals& globals) {
  const bool sources = flags.sources == "all";
  const CompileOptions options = flags.common.options(globals);
  const TraceFolder trace(options, flags.output.empty() ? flags.common.traced() : flags.output, globals);
  std::map<std::string, FileHash> hashes;
  for (const FunctionModel& function : options.entry_points())
    hashes.try_emplace(function.model, function.model);
  const Stage last = sources ? Stage::kSource : Stage::kSchedule;
  const Compilation made = compile(options, last);
  Json& functions = report["functions"] = Json::array();
  for (size_t f = 0; f < made.functions.size(); ++f) {
    check_page(flags, made.functions[f].files);
    print_warnings(made.functions[f].warnings, globals);
    functions.push_back(report_of(made, f, sources));
    functions.back()["sha256"] = hashes.at(made.functions[f].source.model).get();
  }
  if (flags.time_passes) report["passes"] = times_as_json(made.times);
  trace.write(made, last);
}

std::string title_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// The data of another report, or of an artifact.
Json other_report(const Flags& flags) {
  const std::string& path = flags.compared;
  const std::string text = read_manifest_text(path);
  if (Json read = Json::parse(text, nullptr, false); read.is_object() && read.contains("title")) return read;
  return {{"title", title_of(path)}, {"functions", functions_of_artifact(path, flags.common.functions)}};
}

Json compared_with(const Json& here, const Flags& flags) {
  const Json there = other_report(flags);
  try {
    return compare_reports(here, there);
  } catch (const Json::exception& error) {
    fail(ErrorKind::kMalformed, "bad-report", cat("'", flags.compared, "' is not a report: ", error.what()),
         "'stridec schema report' prints the form of the file");
  }
}

int report(const Flags& flags, const Globals& globals) {
  const std::string& model = flags.common.model;
  std::vector<std::string> inputs = flags.common.files();
  inputs.insert(inputs.end(), {flags.profile, flags.trace, flags.compared});
  check_page(flags, inputs);
  Json all = report_head(title_of(model));
  if (is_artifact(model))
    all["functions"] = functions_of_artifact(model, flags.common.functions);
  else
    add_model(all, flags, globals);
  if (!flags.profile.empty()) add_profile(all["functions"], read_profile(flags.profile), flags.profile);
  if (!flags.trace.empty()) all["trace"] = read_trace(flags.trace, all["functions"]);
  if (!flags.compared.empty()) all["compare"] = compared_with(all, flags);
  const std::string data = report_text(all);
  if (globals.json) std::printf("%s", data.c_str());
  if (flags.output.empty()) {
    if (!globals.json)
      fail(ErrorKind::kUsage, "usage", "no file for the page is given", "write -o report.html");
    return 0;
  }
  write_file(flags.output, report_page(all));
  if (const std::string path = data_path(flags.output); !path.empty()) write_file(path, data);
  return 0;
}

}  // namespace

std::function<int()> declare_report(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  flags->common.declare(app, "a model (.onnx, .pt2, .pt), an artifact (.so) or a manifest (.json)");
  app.add_option("-o,--output", flags->output,
                 "the HTML page to write, one file that needs no others; its data are written beside it as "
                 "JSON. Of an artifact it shows kernels and "
                 "nodes, of "
                 "a model also loops, sources, buffers and what the cost model expects")
      ->type_name("FILE");
  app.add_flag("--time-passes", flags->time_passes, "with the time that each pass of the compilation took");
  app.add_option("--sources", flags->sources,
                 "all: with the loops and the source of each kernel; none: without")
      ->check(CLI::IsMember({"all", "none"}));
  app.add_option(
         "--profile", flags->profile,
         "what 'stridec profile' or 'stridec bench' printed with --format=json: the roofline shows what "
         "was measured, and slow kernels are named first")
      ->type_name("FILE");
  app.add_option("--trace", flags->trace,
                 "a trace of 'stridec profile --trace' or STRIDEC_PROFILE: the page shows it along time")
      ->type_name("FILE");
  app.add_option(
         "--compare", flags->compared,
         "an artifact, a manifest, or a report's JSON: the page lists the nodes that are computed in another "
         "way there")
      ->type_name("FILE");
  return [flags, &globals] { return report(*flags, globals); };
}

}  // namespace stridec::cli

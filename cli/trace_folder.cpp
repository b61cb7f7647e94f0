#include "cli/trace_folder.h"

#include <algorithm>
#include <filesystem>

#include "cli/diagram.h"
#include "cli/report_data.h"
#include "cli/report_page.h"
#include "cli/shell_text.h"
#include "cli/stage_text.h"
#include "cli/written_files.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/file_hash.h"
#include "compiler/base/files.h"
#include "compiler/base/options.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

namespace fs = std::filesystem;

struct TracedStage {
  const char* name;
  Stage from;  // the first stage of the compilation after which it can be printed
};
constexpr TracedStage kStages[] = {
    {"graph", Stage::kGraph},       {"loops", Stage::kLoops},       {"rewrites", Stage::kLoops},
    {"kernels", Stage::kLoops},     {"schedule", Stage::kSchedule}, {"fused", Stage::kSchedule},
    {"nodes", Stage::kSchedule},    {"memory", Stage::kSchedule},   {"source", Stage::kSource},
    {"manifest", Stage::kArtifact},
};
constexpr const char *kReport = "report.html", *kData = "report.json", *kCommand = "command.sh",
                     *kDiagram = "graph";

bool is_trace_file(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name == kReport || name == kData || name == kCommand) return true;
  if (file.extension() == ".svg")
    return name == cat(kDiagram, ".svg") || name.starts_with(cat(kDiagram, "-"));
  const auto same = [&](const TracedStage& stage) { return name == cat(stage.name, ".txt"); };
  return std::ranges::any_of(kStages, same);
}

// The script changes to the folder of the original call, so that relative paths name the same files.
std::string command_text(const std::vector<std::string>& arguments) {
  return cat("#!/bin/sh\n# Repeats the compilation that this folder is of.\ncd ",
             shell_word(fs::current_path().string()), " && exec stridec ", join(arguments, " ", shell_word),
             "\n");
}

}  // namespace

TraceFolder::TraceFolder(const CompileOptions& options, const std::string& beside, const Globals& globals)
    : enabled_(Options(options.settings).flag("trace.enabled", false)),
      diagram_(Options(options.settings).flag("trace.graph_diagram", false)),
      rewrites_(!options.extensions.rules.empty()),
      kernels_(!options.extensions.kernels.empty()),
      command_(command_text(globals.arguments)),
      title_(fs::path(options.entry_points().front().model).filename().string()) {
  if (!enabled_ && !diagram_) return;
  path_ = folder_beside(beside, ".trace", "the trace");
  std::error_code error;
  if (!fs::exists(path_, error) || fs::exists(fs::path(path_) / kCommand, error)) return;
  if (fs::is_empty(path_, error)) return;
  fail(ErrorKind::kUnreadable, "other-folder",
       cat("the trace is written to the folder '", path_, "', which has files of something else"),
       "move it, or give the output another name");
}

std::vector<TraceFolder::File> TraceFolder::stages(const Compilation& made, Stage last) const {
  std::vector<File> files;
  for (const TracedStage& stage : kStages) {
    const std::string name = stage.name;
    if (stage.from > last || (name == "rewrites" && !rewrites_) || (name == "kernels" && !kernels_)) continue;
    files.push_back({cat(name, ".txt"), stage_text(made, {.stage = name})});
  }
  if (last < Stage::kSchedule) return files;
  nlohmann::ordered_json report = report_head(title_);
  for (size_t f = 0; f < made.functions.size(); ++f) {
    report["functions"].push_back(report_of(made, f, last >= Stage::kSource));
    report["functions"].back()["sha256"] = FileHash(made.functions[f].source.model).get();
  }
  files.push_back({kReport, report_page(report)});
  files.push_back({kData, report_text(report)});
  return files;
}

void TraceFolder::write(const Compilation& made, Stage last) const {
  if (path_.empty()) return;
  std::vector<File> files;
  if (enabled_) files = stages(made, last);
  for (const FunctionResult& function : made.functions)
    if (diagram_)
      files.push_back(
          {cat(kDiagram, function.source.name.empty() ? "" : cat("-", function.source.name), ".svg"),
           to_svg(diagram_of(function.graph))});
  files.push_back({kCommand, command_});
  make_folder(path_, is_trace_file);
  for (const File& file : files) write_file((fs::path(path_) / file.name).string(), file.text);
}

}  // namespace stridec::cli

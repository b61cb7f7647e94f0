
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/budget.h"
#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/exit_owner.h"
#include "cli/kernel_sources.h"
#include "cli/output.h"
#include "cli/pass_flags.h"
#include "cli/progress.h"
#include "cli/refused.h"
#include "cli/stored_weights.h"
#include "cli/trace_folder.h"
#include "cli/tuning_report.h"
#include "cli/written_files.h"
#include "compiler/base/counted.h"
#include "compiler/base/files.h"
#include "compiler/base/number.h"
#include "compiler/base/printable.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/compile.h"
#include "compiler/loop/kernels.h"
#include "compiler/own_kernels.h"
#include "compiler/package/weight_shares.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  CompileFlags common;
  PassFlags passes;
  std::string output;
};

// Fails before the work instead of after it: for a missing folder, a device, or an output that would
// overwrite another output or a file that was read.
void check_artifact_files(const std::string& output, const std::string& weights,
                          const std::vector<std::string>& sources) {
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    fail(ErrorKind::kUnreadable, "no-folder", cat("the folder of '", output, "' does not exist"),
         "create it first");
  const std::string help = "choose another name for the library: --output name.so";
  check_outputs({{output, "the library", help},
                 {package::manifest_path(output), "the manifest", help},
                 {weights.empty() ? "" : (folder / weights).string(), "the file of weights", help}},
                sources);
  check_extension(output, "the library", {".so"}, "--output name.so");
}

// A program of the artifact: its target and sizes, and the number of launches of a run.
struct Contained {
  std::string function, target, sizes;  // function: "" for the only one; sizes: "" for all
  size_t operations, launches;
};
// In the order of Compilation::programs().
std::vector<Contained> contained(const Compilation& made) {
  std::vector<Contained> all;
  for (const FunctionResult& function : made.functions) {
    const std::string name = made.functions.size() > 1 ? function.name() : "";
    const size_t operations = function.loops.nests.size();
    for (const auto& variant : function.gpu_variants)
      all.push_back({name, variant.target.name, "", operations, loop::kernels_of(variant.program).size()});
    for (const auto& variant : function.variants)
      all.push_back({name, variant.target.name, variant.when.is_const(1) ? "" : sym::to_string(variant.when),
                     operations, loop::kernels_of(variant.program).size()});
  }
  return all;
}

// Bytes of weights that one target of one function needs alone. The panels of a GEMM have the layout of its
// tiles, so two targets, or two functions, may each have their own.
struct OwnWeights {
  std::string function, target;
  uint64_t bytes;
};
struct Weights {
  uint64_t shared = 0;
  std::vector<OwnWeights>
      own;  // empty: there is one program, or there are only those of one target and its sizes
};
Weights weights_of(const std::vector<Contained>& programs, const package::Programs& all) {
  Weights out;
  std::vector<package::Programs> groups;
  for (size_t i = 0; i < programs.size(); ++i) {
    const Contained& each = programs[i];
    if (each.sizes.empty()) {
      out.own.push_back({each.function, each.target, 0});
      groups.emplace_back();
    }
    groups.back().push_back(all[i]);
  }
  if (groups.size() < 2) return {};
  const package::WeightShares shares = package::weight_shares(groups);
  out.shared = shares.shared;
  for (size_t g = 0; g < groups.size(); ++g) out.own[g].bytes = shares.own[g];
  return out;
}

// "13.0 MB of weights shared, 11.2 MB of x86-64-v4 alone"
std::string text_of(const Weights& weights) {
  const auto name = [](const OwnWeights& own) {
    return own.function.empty() ? own.target : cat(own.function, " on ", own.target);
  };
  std::string text = cat(human_bytes(weights.shared), " of weights shared");
  for (const OwnWeights& own : weights.own)
    if (own.bytes > 0) text += cat(", ", human_bytes(own.bytes), " of ", name(own), " alone");
  return text;
}

Json json_of(const Weights& weights) {
  Json own = Json::array();
  for (const OwnWeights& each : weights.own) {
    own.push_back({{"target", each.target}, {"bytes", each.bytes}});
    if (!each.function.empty()) own.back()["function"] = each.function;
  }
  return {{"shared", weights.shared}, {"own", own}};
}

Json json_of(const std::vector<Contained>& programs) {
  Json listed = Json::array();
  for (const Contained& each : programs) {
    listed.push_back({{"target", each.target},
                      {"sizes", each.sizes.empty() ? Json(nullptr) : Json(each.sizes)},
                      {"launches", each.launches}});
    if (!each.function.empty()) listed.back()["function"] = each.function;
  }
  return listed;
}

int print_json(const nlohmann::ordered_json& json, const Globals& globals) {
  if (globals.json)
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return 0;
}

// Prints a line for each part of the work as soon as it is done.
class Report {
 public:
  Report(ProgressPrinter& progress, const CompileOptions& options) : progress_(progress), options_(options) {}

  void stage_begins(std::string_view stage, const Compilation& made) {
    if (stage == "graph") reading(made);
    if (stage == "tuning") tuning_begins_ = Clock::now();
    if (stage_ == "tuning") tuning_seconds_ += seconds_since(tuning_begins_);
    if (stage == "packing") tuning(made), fusing(made), recomputing(made);
    if (stage == "linking") building(made);
    stage_ = stage;
  }

  double tuning_seconds() const { return tuning_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void reading(const Compilation& made) {
    for (const FunctionResult& function : made.functions) {
      const FunctionModel& source = function.source;
      progress_.line("reading", cat(std::filesystem::path(source.model).filename().string(), ", ",
                                    function.summary, source.name.empty() ? "" : ", as ", source.name));
      for (const Diagnostic& warning : function.warnings) progress_.line("warning", warning_text(warning));
    }
    if (options_.cpus.empty() && std::ranges::count(options_.targets, "cpu") > 0)
      progress_.line("note", cat("for this machine's CPU, ", cpu_target("native").name,
                                 "; name others for other machines: --cpu x86-64-v2,x86-64-v3,x86-64-v4"));
  }

  void tuning(const Compilation& made) {
    const std::string& file = options_.tuning.database;
    const std::string text =
        tuning_text(made, tuning_seconds_, file.empty() ? tune::default_database() : file);
    if (!text.empty()) progress_.line("tuning", text);
    for (const tune::Tuned* kernel : made.refused())
      progress_.line("warning", cat("kernel '", kernel->entry.kernel, "'",
                                    kernel->nodes.empty() ? "" : cat(" (", kernel->nodes, ")"),
                                    " does not have its schedule in the tuning database, for ",
                                    kernel->entry.key.target, ": ", kernel->refused));
    if (const std::string& problem = made.main().gpu_problem; !problem.empty())
      progress_.line("tuning", cat("nothing was measured for GPUs: ", problem,
                                   "; their schedules are the tuning database's and the model's"));
  }

  void fusing(const Compilation& made) {
    for (const FunctionResult& function : made.functions) {
      for (const Diagnostic& warning : function.warnings)
        if (warning.code == kOwnKernel) progress_.line("warning", warning_text(warning));
      for (const extend::KernelChoice& each : function.kernels)
        if (each.kind == extend::KernelChoice::Kind::kChosen)
          progress_.line("kernels", cat(printable(each.kernel), " computes ", printable(each.node)));
    }
    for (const Contained& each : contained(made))
      progress_.line("fusing", cat(each.function, each.function.empty() ? "" : ": ",
                                   counted(each.operations, "operation"), " -> ",
                                   counted(each.launches, "kernel launch", "kernel launches"), " a run on ",
                                   each.target, each.sizes.empty() ? "" : cat(" where ", each.sizes)));
  }

  void recomputing(const Compilation& made) {
    if (!options_.memory_budget) return;
    for (const FunctionResult& function : made.functions) {
      const schedule::RecomputePlan& plan = function.recomputation;
      const std::string& name = function.source.name;
      const auto bytes = [](int64_t count) { return human_bytes(static_cast<uint64_t>(count)); };
      progress_.line("memory", cat(name, name.empty() ? "" : ": ", bytes(plan.arena), " of tensors, ",
                                   bytes(plan.keeping_all), " if all were kept, ", bytes(plan.least),
                                   " at least; ", counted(plan.recomputed.size(), "tensor"),
                                   plan.recomputed.size() == 1 ? " is" : " are", " computed again"));
    }
  }

  // Code that several kernels call, such as a GEMM micro-kernel, counts as a kernel of its own.
  void building(const Compilation& made) {
    const size_t kernels = made.built.kernels.size() + made.device.kernels.size();
    progress_.line("packing",
                   human_bytes(static_cast<uint64_t>(made.programs().front()->weight_bytes)) + " of weights");
    progress_.line("building", cat(counted(kernels, "kernel"),
                                   made.programs().size() == 1 ? "" : " for all of these programs",
                                   "; equal ones are built once"));
  }

  ProgressPrinter& progress_;
  const CompileOptions& options_;
  std::string stage_;
  Clock::time_point tuning_begins_;
  double tuning_seconds_ = 0;
};

int run(const Flags& flags, const Globals& globals) {
  const auto start = std::chrono::steady_clock::now();
  ProgressPrinter progress(globals);
  CompileOptions options = flags.common.options(globals);
  options.progress = [&progress](std::string_view stage, int64_t done, int64_t total, std::string_view what) {
    progress.update(stage, done, total, what);
  };
  Report report(progress, options);
  options.stage_begins = [&report](std::string_view stage, const Compilation& so_far) {
    report.stage_begins(stage, so_far);
  };
  std::vector<PassDump> dumps;
  options.passes = flags.passes.options(globals, &dumps);
  std::string output = flags.output;
  if (output.empty() && !options.functions.empty())
    fail(ErrorKind::kUsage, "usage", "an artifact of functions needs a name", "give --output name.so");
  if (output.empty()) output = std::filesystem::path(options.model).replace_extension(".so").string();
  if (flags.common.weights == "external") options.weights_file = package::weights_name(output);
  check_artifact_files(output, options.weights_file, flags.common.files());

  const TraceFolder trace(options, output, globals);
  const std::string sources = kernel_folder(options, output);
  const Compilation made = compile(options);
  nlohmann::ordered_json json;
  for (const PassDump& dump : dumps)
    json["dumps"].push_back({{"pass", dump.name}, {"variant", dump.variant}, {"text", dump.text}});
  if (flags.passes.times && globals.json) json["passes"] = times_as_json(made.times);
  if (flags.passes.times && !globals.json) print_times(made.times);
  if (made.stopped) {
    progress.line("stopped", cat("after ", flags.passes.stop_after, "; no artifact was written"));
    return print_json(json, globals);
  }
  const loop::Program& program = *made.programs().front();
  const std::vector<Contained> programs = contained(made);
  const size_t kernels = made.built.kernels.size() + made.device.kernels.size();
  json["warnings"] = nlohmann::ordered_json::array();
  for (const FunctionResult& function : made.functions) {
    for (const Diagnostic& warning : function.warnings) json["warnings"].push_back(warning_text(warning));
    check_artifact_files(output, options.weights_file, function.files);
  }
  json["refused"] = refused_json(made.refused());
  package::StagedArtifact staged(made.artifact, made.programs(), output);
  own_exit();
  staged.publish();
  trace.write(made, Stage::kArtifact);
  write_kernel_sources(made, sources);
  const auto size = std::filesystem::file_size(output);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const uint64_t peak = peak_bytes();
  const uint64_t weights = static_cast<uint64_t>(program.weight_bytes);
  const bool external = !options.weights_file.empty();
  const std::string parts =
      external
          ? cat(output, " (", human_bytes(size), "), ", options.weights_file, " (", human_bytes(weights), ")")
          : cat(output, " (", human_bytes(size), ", ", human_bytes(size - weights), " without weights)");
  const Weights shares = weights_of(programs, made.programs());
  progress.line("wrote", cat(parts, shares.own.empty() || weights == 0 ? "" : cat("; ", text_of(shares)),
                             ", ", package::manifest_path(output), "   ", human_seconds(seconds), ", ",
                             human_bytes(peak), " peak"));
  const StoredWeights sizes = stored_weights(made);
  if (!trace.path().empty()) progress.line("trace", trace.path());
  if (!sources.empty()) progress.line("sources", sources);
  if (const std::string text = growth_text(sizes); !text.empty()) progress.line("note", text);
  json.update({{"artifact", output},
               {"manifest", package::manifest_path(output)},
               {"bytes", size},
               {"weight_bytes", weights},
               {"model_weight_bytes", sizes.of_model},
               {"weight_shares", shares.own.empty() ? Json(nullptr) : json_of(shares)},
               {"weights_file", external ? Json(options.weights_file) : Json(nullptr)},
               {"trace", trace.path().empty() ? Json(nullptr) : Json(trace.path())},
               {"kernels", kernels},
               {"launches", programs.front().launches},
               {"programs", json_of(programs)},
               {"tuning", tuning_json(made, report.tuning_seconds())},
               {"seconds", seconds},
               {"peak_bytes", peak}});
  return print_json(json, globals);
}

}  // namespace

std::function<int()> declare_compile(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  app.option_defaults()->group("Files");
  app.add_option("-o,--output", flags->output,
                 "the shared library to write; the manifest is written next to it (default: the model's name "
                 "with .so)")
      ->type_name("FILE");
  flags->common.declare(app);
  flags->passes.declare(app);
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli

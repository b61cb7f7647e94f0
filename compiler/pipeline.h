// The pipeline of a compilation as a value: a list of passes that can be printed, extended and truncated.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/file_hash.h"
#include "compiler/base/pass.h"
#include "compiler/compilation.h"
#include "compiler/graph/graph.h"
#include "compiler/select_targets.h"

namespace stridec {

// A function while the passes work on it.
struct ModuleFunction {
  graph::Graph graph;
  // Programs before they are scheduled for a target: the general one first, then those of --specialize.
  std::vector<codegen::cpu::Variant> programs;
  // Of the last pass, for NodeTrace: the rule or pass that replaced a node.
  std::map<std::string, std::string> replaced_by;
  std::optional<FileHash> hash;  // of the model file; computed in the background
};

// The data that the passes work on.
struct Module {
  const CompileOptions& options;
  Targets targets;
  Stage last = Stage::kArtifact;  // the last stage to run
  std::vector<ModuleFunction> functions;
  codegen::cpu::BuildOptions build;
  Compilation made;           // its functions are those above
  double tuning_seconds = 0;  // spent so far
  std::string_view pass;      // the name of the current pass

  // Whether decisions and candidates are kept for a person to read.
  bool explains() const {
    return last == Stage::kSchedule || last == Stage::kSource ||
           Options(options.settings).flag("trace.enabled", false);
  }
  void tell(std::string_view stage, size_t done = 0, size_t total = 0, std::string_view what = {}) const {
    if (options.progress)
      options.progress(stage, static_cast<int64_t>(done), static_cast<int64_t>(total), what);
  }
};

// All passes, from the imported graph to the linked library.
Pipeline default_pipeline();
// The passes up to and including the last one of the stage.
Pipeline pipeline_until(Stage last);

// The index of the pass. Throws a usage Error that contains the name if there is no such pass.
size_t find_pass(const Pipeline& pipeline, std::string_view name);
void insert_before(Pipeline& pipeline, std::string_view name, const Pass& pass);
void insert_after(Pipeline& pipeline, std::string_view name, const Pass& pass);
void cut_after(Pipeline& pipeline, std::string_view name);

// Throws a usage Error for an option that is not in options(), or that no pass reads for these targets.
void check_options(const Options& options, const Pipeline& pipeline, const Targets& targets);

// Runs the passes in order. Returns false if PassOptions::stop_after ended the run.
bool run(const Pipeline& pipeline, Module& module, PassRunner& runner, PassContext context);

}  // namespace stridec

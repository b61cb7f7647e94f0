// The options of a compilation and the results of its stages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/pass.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/extend/extensions.h"
#include "compiler/extend/rewrite.h"
#include "compiler/fates.h"
#include "compiler/frontend/import.h"
#include "compiler/graph/graph.h"
#include "compiler/layouts.h"
#include "compiler/loop/program.h"
#include "compiler/loop/specialize.h"
#include "compiler/package/artifact.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/explain.h"
#include "compiler/schedule/memory/recompute.h"
#include "compiler/train/settings.h"
#include "compiler/tune/tune.h"

namespace stridec {

struct Mode {
  std::string_view name, meaning;
  bool measure = false;              // tune schedules
  int spin_us = 0, thread_cost = 1;  // codegen::HostOptions
  bool graphs = false;               // record GPU runs as graphs, unless option cudagraphs is given
};
const std::vector<Mode>& modes();
const Mode& mode(std::string_view name);  // must be in modes()

// All options of -O: those of passes and those that other code reads.
const std::vector<OptionInfo>& options();

// Reports progress. total is 0 if it is unknown. Called from any thread.
using Progress =
    std::function<void(std::string_view stage, int64_t done, int64_t total, std::string_view what)>;

// Called before the first pass of each stage, with the results so far.
struct Compilation;
using StageBegins = std::function<void(std::string_view stage, const Compilation& so_far)>;

// Where tuned schedules come from. compiler/tune/database.h describes the file.
struct Tuning {
  std::string database;             // "": tune::default_database() if anything is tuned
  bool frozen = false;              // replay the database: measure nothing; a missing entry is an error
  std::vector<tune::Sizes> shapes;  // to measure at; tune/shapes.h lists the others
  // For measuring, all programs together; 0: tune::Options::seconds for each. Kernels that get no time keep
  // their default schedules and get no entry.
  double seconds = 0;
  double limit = 0;  // the same as an upper limit; 0: none
};

// An entry point of the artifact.
struct FunctionModel {
  std::string name;         // "": that of the model
  std::string model;        // a file in one of the formats of frontend/import.h
  std::string method = {};  // frontend::ImportOptions
};

struct CompileOptions {
  std::string model;                            // of the only function
  std::vector<FunctionModel> functions;         // several functions, in place of `model`; names are unique
  std::string name, method;                     // frontend::ImportOptions; of `model`
  std::map<std::string, std::string> metadata;  // of the caller, for the manifest
  // "cpu", "cuda". With both, the runtime uses the GPU if it can.
  std::vector<std::string> targets = {"cpu"};
  std::vector<std::string> cpus;  // variants, in any order; empty: the CPU of this machine
  std::vector<std::string> gpus;  // likewise; empty: sm_90a, sm_80 and ptx
  std::string nvrtc;  // the library that builds GPU kernels, or its folder; "": search the usual places
  std::vector<frontend::DimRange> dims;
  std::vector<frontend::InputShape> shapes;
  std::vector<frontend::InputValue> input_values;
  std::vector<frontend::StatePattern> states;
  std::vector<Layout> layouts;
  std::vector<std::string> refit;  // names of weights that may be replaced (frontend/parameters.h)
  std::shared_ptr<const graph::GivenWeights> weights;  // frontend::ImportOptions
  // If set, each of `functions` is a function of the training, of the same model (compiler/train).
  std::optional<train::Settings> training;
  bool sizes_stay_open = false;  // frontend::ImportOptions
  std::string mode = "default";
  std::string precision = "fp32";               // one of passes::precisions()
  std::map<std::string, std::string> settings;  // -O name=value; the names are those of options()
  std::string weights_file;                     // file name for external weights; "": embed the weights
  std::optional<schedule::MemoryBudget> memory_budget;  // of a run's tensors; none: nothing is recomputed
  // Sizes that get a program of their own in addition to the general one. The run selects the program.
  std::vector<loop::SymbolValues> specialize;
  Tuning tuning;
  bool use_cache = true;  // of compiled kernels, and of rules that were checked
  extend::Extensions extensions;
  PassOptions passes;
  std::function<void(Pipeline&)> edit_pipeline;  // may be empty; edits the pass list before it runs
  Progress progress;
  StageBegins stage_begins;

  std::vector<FunctionModel> entry_points() const {
    return functions.empty() ? std::vector<FunctionModel>{{"", model, method}} : functions;
  }
};
// Whether schedules are to be measured: the option of this name, or what the mode says.
bool max_autotune(const CompileOptions& options);

// The generator of PyTorch whose bits draws have (-O fallback_random): that on GPUs if all targets are
// GPUs. A usage Error for a training.
std::optional<ops::TorchGenerator> torch_random(const CompileOptions& options);

// kSource: the texts of all kernels and of the host program. No external tool has run, and packed weights
// have no bytes.
enum class Stage { kGraph, kLoops, kSchedule, kSource, kArtifact };

// The results of each stage for one function. Stages that were not reached leave theirs empty.
struct FunctionResult {
  FunctionModel source;
  std::vector<frontend::DimRange> dims;  // those of the options that name sizes of this model
  std::vector<frontend::InputShape> shapes;
  std::vector<frontend::InputValue> input_values;
  std::string summary;  // of the model: "opset 18, 585 nodes, weights 437.9 MB"
  frontend::ModelFacts facts;
  std::vector<std::string> files;             // the files that the model was read from
  NodeTrace nodes;                            // what became of the model's nodes
  std::vector<extend::RuleEffect> rules;      // what the rules of the extensions did
  std::vector<extend::KernelChoice> kernels;  // where kernels of the user could be used
  std::vector<Diagnostic> warnings;           // from the frontend
  graph::Graph graph;                         // as imported, before the graph passes
  loop::Program loops;                        // one nest per operator
  std::vector<schedule::Decision> decisions;
  // Fused, laid out, scheduled, with memory planned; best first. The programs for specialised sizes follow
  // their variant.
  std::vector<codegen::cpu::Variant> variants;
  // For programs of variants whose parameters may be replaced (codegen/cpu/derive.h).
  std::map<const loop::Program*, codegen::cpu::Variant> derivations;
  schedule::RecomputePlan recomputation;  // of the first variant, if there is a memory budget
  // Of the first CPU variant, if kSchedule or kSource was the last stage.
  std::vector<schedule::Choice> choices;
  std::vector<std::vector<tune::Tuned>> tuned;  // per variant; empty: schedules from the analytic model only
  // Why nothing was measured for GPUs although tuning was requested, as part of a sentence.
  std::string gpu_problem;
  std::vector<codegen::cuda::Variant> gpu_variants;  // as `variants`

  // Kernels of all variants that use the default schedule because the one in the tuning database does not
  // apply.
  std::vector<const tune::Tuned*> refused() const {
    std::vector<const tune::Tuned*> out;
    for (const auto& variant : tuned)
      for (const tune::Tuned& kernel : variant)
        if (!kernel.refused.empty() && kernel.origin == tune::Tuned::Origin::kDefault) out.push_back(&kernel);
    return out;
  }

  // The programs of all variants, in the order in which the runtime tries them.
  package::Programs programs() const {
    package::Programs out;
    for (const auto& variant : gpu_variants) out.push_back(&variant.program);
    for (const auto& variant : variants) out.push_back(&variant.program);
    return out;
  }
  const std::string& name() const { return graph.name; }
};

// The results of a compilation, which `inspect` prints.
struct Compilation {
  std::vector<FunctionResult> functions;  // at least one
  codegen::cpu::Built built;
  codegen::cuda::Built device;
  package::Artifact artifact;
  std::vector<PassTime> times;
  bool stopped = false;  // PassOptions::stop_after ended the compilation

  const FunctionResult& main() const { return functions.front(); }
  std::vector<const tune::Tuned*> refused() const {
    std::vector<const tune::Tuned*> out;
    for (const FunctionResult& function : functions)
      for (const tune::Tuned* kernel : function.refused()) out.push_back(kernel);
    return out;
  }
  // The programs of all variants of all functions.
  package::Programs programs() const {
    package::Programs out;
    for (const FunctionResult& function : functions)
      for (const loop::Program* program : function.programs()) out.push_back(program);
    return out;
  }
};

}  // namespace stridec

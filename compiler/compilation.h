// What a compilation is asked for, and what each of its stages made.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/pass.h"
#include "compiler/codegen/cpu/build.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/frontend/import.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"
#include "compiler/loop/specialize.h"
#include "compiler/package/artifact.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/explain.h"
#include "compiler/tune/tune.h"

namespace stridec {

struct Mode {
  std::string_view name, meaning;
  bool measure = false;              // schedules are tuned
  int spin_us = 0, thread_cost = 1;  // codegen::HostOptions
  bool graphs = false;  // runs on a GPU are recorded, where option cudagraphs does not say otherwise
};
const std::vector<Mode>& modes();
const Mode& mode(std::string_view name);  // of the list

// All options of -O: those of passes, and those that are read elsewhere.
const std::vector<OptionInfo>& options();

// How far along the work is; total is 0 where it is not known. Called from any thread.
using Progress =
    std::function<void(std::string_view stage, int64_t done, int64_t total, std::string_view what)>;

// Where tuned schedules come from; compiler/tune/database.h describes the file.
struct Tuning {
  std::string database;             // "": tune::default_database() where something is tuned
  bool frozen = false;              // replay it: nothing is measured, what it lacks is an error
  std::vector<tune::Sizes> shapes;  // to measure at; tune/shapes.h says which others
};

struct CompileOptions {
  std::string model;                           // a file; frontend/import.h says of which formats
  std::vector<std::string> targets = {"cpu"};  // "cpu", "cuda"; both: the runtime takes the GPU where it can
  std::vector<std::string> cpus;               // variants, in any order; empty: the CPU at hand
  std::vector<std::string> gpus;               // likewise; empty: sm_90a, sm_80 and ptx
  std::string nvrtc;  // the library that builds GPU kernels, or its folder; "": where it usually is
  std::vector<frontend::DimRange> dims;
  std::vector<frontend::InputValue> input_values;
  std::vector<frontend::StatePattern> states;
  bool sizes_stay_open = false;  // frontend::ImportOptions
  std::string mode = "default";
  std::string precision = "fp32";               // of passes::precisions()
  std::map<std::string, std::string> settings;  // -O name=value, of options()
  std::string weights_file;                     // a name for weights beside the library; "": within it
  // Sizes for which there is a program of its own beside the general one, chosen during the run.
  std::vector<loop::SymbolValues> specialize;
  Tuning tuning;
  bool use_cache = true;  // of compiled kernels
  PassOptions passes;
  std::function<void(Pipeline&)> edit_pipeline;  // may be empty; changes the rows before they run
  Progress progress;
};

// kSource: the texts of all kernels and of the host program; no tool has run, and packed weights have no bytes.
enum class Stage { kGraph, kLoops, kSchedule, kSource, kArtifact };

// What each stage made; `inspect` prints them. A stage that was not reached is empty.
struct Compilation {
  std::string summary;             // of the model: "opset 18, 585 nodes, weights 437.9 MB"
  std::vector<std::string> files;  // that the model was read from
  std::vector<Diagnostic> warnings;  // of the frontend
  graph::Graph graph;              // as imported, before the passes on it
  loop::Program loops;             // one nest an operator
  std::vector<schedule::Decision> decisions;
  std::vector<codegen::cpu::Variant>
      variants;  // fused, laid out, scheduled, with memory planned; best first,
                 // behind each the programs for some sizes alone
  std::vector<schedule::Choice>
      choices;  // of the first CPU variant, where kSchedule or kSource was the last stage
  std::vector<std::vector<tune::Tuned>> tuned;  // of each variant; empty: schedules by the model alone
  std::string
      gpu_problem;  // why nothing was measured for GPUs although it should have been, as part of a sentence
  std::vector<codegen::cuda::Variant> gpu_variants;  // likewise
  codegen::cpu::Built built;
  codegen::cuda::Built device;
  package::Artifact artifact;
  std::vector<PassTime> times;
  bool stopped = false;  // by PassOptions::stop_after

  // Kernels whose schedule in the tuning database does not apply and that have their default instead, of all variants.
  std::vector<const tune::Tuned*> refused() const {
    std::vector<const tune::Tuned*> out;
    for (const auto& variant : tuned)
      for (const tune::Tuned& kernel : variant)
        if (!kernel.refused.empty() && kernel.origin == tune::Tuned::Origin::kDefault) out.push_back(&kernel);
    return out;
  }

  package::Programs programs() const {
    package::Programs out;
    for (const auto& variant : gpu_variants) out.push_back(&variant.program);
    for (const auto& variant : variants) out.push_back(&variant.program);
    return out;
  }  // of all variants, the first tried first
};

}  // namespace stridec

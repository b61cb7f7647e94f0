#include "compiler/compile.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/file_hash.h"
#include "compiler/base/parallel.h"
#include "compiler/base/text.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/autocast.h"
#include "compiler/passes/pass_list.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/schedule/pass_list.h"
#include "compiler/select_targets.h"
#include "compiler/sym/text.h"
#include "compiler/tuned_schedules.h"
#include "compiler/unsupported.h"

namespace stridec {
namespace {

using codegen::cpu::Variant;

package::ManifestFacts facts_of(const CompileOptions& options, const Compilation& made,
                                const FileHash& model) {
  package::ManifestFacts facts{.model_file = std::filesystem::path(options.model).filename().string(),
                               .model_sha256 = model.get(),
                               .mode = options.mode,
                               .settings = options.settings,
                               .driver = made.device.driver,
                               .weights_file = options.weights_file,
                               .tuning = tuning_facts(made)};
  for (const frontend::DimRange& dim : options.dims) facts.dims[dim.name] = frontend::to_string(dim);
  if (options.precision != "fp32") facts.settings["precision"] = options.precision;
  for (const Variant& variant : made.variants) {
    if (variant.when.is_const(1))
      facts.variants.push_back(variant.target.name);
    else if (made.gpu_variants.empty() && variant.target.name == made.variants.front().target.name)
      facts.specializations.push_back({variant.when, &variant.program});
  }
  for (const codegen::cuda::Variant& variant : made.gpu_variants)
    facts.gpu_variants.push_back(variant.target.name);
  return facts;
}

PassRunner make_runner(const CompileOptions& options) {
  PassOptions passes = options.passes;
  for (const auto& [name, value] : options.settings)
    if (value == "false") passes.skip.insert(passes.skip.end(), {name, "gpu " + name});
  return PassRunner(passes, [&](std::string_view stage, size_t done, size_t total, std::string_view what) {
    if (options.progress)
      options.progress(stage, static_cast<int64_t>(done), static_cast<int64_t>(total), what);
  });
}

constexpr int kGraphs = 8;  // shapes that a context keeps recorded

bool setting(const CompileOptions& options, const std::string& name, bool otherwise) {
  const auto given = options.settings.find(name);
  return given == options.settings.end() ? otherwise : given->second == "true";
}

bool wants_graphs(const CompileOptions& options) {
  return setting(options, "cudagraphs", mode(options.mode).graphs);
}

// CPUs multiply f32 where GPUs take tf32.
DType factors_of(const std::string& precision, const Targets& targets) {
  const DType factors = passes::precision(precision).factors;
  return factors == DType::kTF32 && targets.gpus.empty() ? DType::kF32 : factors;
}

Compilation run(graph::Graph graph, const CompileOptions& options, Stage last, PassRunner runner) {
  auto tell = [&](std::string_view stage, int64_t done = 0, int64_t total = 0, std::string_view what = {}) {
    if (options.progress) options.progress(stage, done, total, what);
  };
  const Targets targets = select_targets(options.targets, options.cpus, options.gpus);
  Compilation made;
  graph::eliminate_dead_code(graph);
  made.graph = graph;
  auto stopped = [&] {
    made.times = runner.times();
    made.stopped = true;
    return std::move(made);
  };

  if (!runner.made(passes::graph_passes(), graph)) return stopped();
  if (last == Stage::kGraph) return made;

  if (!runner.run(passes::graph_passes(), graph, {})) return stopped();
  const DType factors = factors_of(options.precision, targets);
  if (!runner.run(passes::precision_passes(), graph, {}, factors)) return stopped();
  tell("lowering");
  made.loops = ops::lower(graph);
  if (const auto problems = unsupported_steps(made.loops, targets); !problems.empty())
    throw frontend::as_error(problems, options.model);
  tune::check_shapes(made.loops, options.tuning.shapes);
  if (!runner.made(schedule::loop_passes(), made.loops)) return stopped();
  if (last == Stage::kLoops) return made;

  // A large model's hash takes as long as all else: it is made beside that, but not while kernels are timed.
  std::optional<FileHash> hash;
  if (last == Stage::kArtifact) hash.emplace(options.model);
  const auto before_measuring = [&] {
    if (hash) hash->wait();
  };

  std::vector<Variant> programs = {{.program = made.loops}};  // the general one first
  for (const loop::SymbolValues& sizes : options.specialize)
    programs.push_back({.program = loop::specialized(made.loops, sizes), .when = loop::condition_of(sizes)});
  const bool epilogues = setting(options, "epilogue_fusion", true);
  using Decisions = std::vector<schedule::Decision>;
  const bool explains = last == Stage::kSchedule || last == Stage::kSource;
  Decisions* const wanted = explains ? &made.decisions : nullptr;
  auto schedule_all = [&](const auto& passes, const auto& telling) {
    return std::all_of(programs.begin(), programs.end(), [&](Variant& given) {
      const bool general = given.when.is_const(1);
      const std::string sizes = general ? "" : sym::to_string(given.when);
      return runner.run(passes, given.program, sizes, telling(general ? wanted : nullptr));
    });
  };
  if (!schedule_all(schedule::loop_passes(), [&](Decisions* decisions) {
        return schedule::FusionOptions{.decisions = decisions, .epilogues = epilogues};
      }))
    return stopped();
  for (const GpuTarget& target : targets.gpus) {
    auto& variant = made.gpu_variants.emplace_back(codegen::cuda::Variant{target, programs[0].program});
    if (!runner.run(schedule::gpu_loop_passes(), variant.program, target.name, target,
                    schedule::GpuRules{.factors = factors,
                                       .epilogues = epilogues,
                                       .decisions = made.gpu_variants.size() == 1 ? wanted : nullptr}))
      return stopped();
    const schedule::Chosen chosen = tuned(variant.program, target, options, before_measuring, made);
    if (!runner.run(schedule::gpu_passes(), variant.program, target.name, target, chosen)) return stopped();
  }
  if (!targets.cpus.empty() &&
      !schedule_all(schedule::cpu_loop_passes(), [](Decisions* decisions) { return decisions; }))
    return stopped();
  made.variants.reserve(targets.cpus.size() * programs.size());  // emitted kernels point into them
  for (const CpuTarget& target : targets.cpus) {
    for (const Variant& given : programs) {
      Variant& variant = made.variants.emplace_back(given);
      variant.target = target;
      const schedule::Chosen chosen = tuned(variant.program, target, options, before_measuring, made);
      if (explains && made.variants.size() == 1)
        made.choices = schedule::explain(variant.program, target, chosen);
      if (!runner.run(schedule::cpu_passes(), variant.program, target.name, target, chosen)) return stopped();
      codegen::cpu::emit(variant);
      if (!runner.run(schedule::cpu_memory_passes(), variant.program, target.name,
                      std::span<schedule::Scratch>(variant.scratch)))
        return stopped();
    }
  }
  if (last == Stage::kSchedule) return made;

  codegen::cpu::BuildOptions build{.use_cache = options.use_cache};
  tell("packing");
  std::vector<loop::Program*> all;
  for (codegen::cuda::Variant& variant : made.gpu_variants) all.push_back(&variant.program);
  for (Variant& variant : made.variants) all.push_back(&variant.program);
  if (last != Stage::kSource)
    for (loop::Program* each : all) codegen::cpu::run_prepack(*each, cpu_target("native"), build);
  schedule::plan_weights(all);
  runner.lap("packing");
  build.host = package::host_options(made.programs(), options.weights_file);
  build.host.spin_us = mode(options.mode).spin_us;
  build.host.thread_cost = mode(options.mode).thread_cost;
  build.host.graphs = wants_graphs(options) ? kGraphs : 0;
  made.device = codegen::cuda::emit(made.gpu_variants);
  build.devices = made.device.host;
  made.built = codegen::cpu::assemble(made.variants, build);
  if (last == Stage::kSource) return made;

  struct Share {
    std::atomic<size_t> done{0}, total{0};
  } device, host;
  const auto counted = [&](Share& share) {
    return [&](size_t done, size_t total) {
      share.done = done, share.total = total;
      tell("building", static_cast<int64_t>(device.done + host.done),
           static_cast<int64_t>(device.total + host.total), "kernels");
    };
  };
  build.progress = counted(host);
  const codegen::cuda::BuildOptions images{
      .use_cache = options.use_cache, .nvrtc = options.nvrtc, .progress = counted(device)};
  codegen::cuda::prepare(made.device, images);
  // The host program is one long compilation, which kernels of a GPU need not wait for.
  for_each_parallel(2, 2, [&](size_t half) {
    if (half == 0)
      codegen::cpu::compile(made.built, build);
    else
      codegen::cuda::compile(made.device, images);
  });
  runner.lap("building");

  tell("linking");
  made.artifact = package::link(made.programs(), made.built, made.device, facts_of(options, made, *hash));
  runner.lap("linking");
  made.times = runner.times();
  return made;
}

}  // namespace

Compilation compile(const CompileOptions& options, Stage last) {
  try {
    PassRunner runner = make_runner(options);
    if (options.progress) options.progress("reading", 0, 0, options.model);
    frontend::Imported imported = frontend::import_file(
        options.model,
        {.dims = options.dims, .states = options.states, .sizes_stay_open = options.sizes_stay_open});
    if (!imported.problems.empty()) throw frontend::as_error(imported.problems, options.model);
    Compilation made = run(std::move(imported.graph), options, last, std::move(runner));
    made.summary = std::move(imported.summary);
    made.files = std::move(imported.files);
    return made;
  } catch (Error& error) {
    if (error.diagnostic.where.file.empty() && error.diagnostic.kind != ErrorKind::kUsage)
      error.diagnostic.where.file = options.model;
    throw;
  }
}

Compilation compile(graph::Graph graph, const CompileOptions& options, Stage last) {
  return run(std::move(graph), options, last, make_runner(options));
}

}  // namespace stridec

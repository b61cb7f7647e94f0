#include "compiler/compile.h"

#include <algorithm>
#include <filesystem>

#include "compiler/base/sha256.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/pass_list.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/pass_list.h"
#include "compiler/tuned.h"

namespace stridec {
namespace {

using codegen::cpu::Variant;

// Best first: the order in which the runtime tries them.
std::vector<CpuTarget> targets_of(const CompileOptions& options) {
  std::vector<CpuTarget> targets;
  for (const auto& name : options.cpus.empty() ? std::vector<std::string>{"native"} : options.cpus) {
    const CpuTarget& target = cpu_target(name);
    if (std::none_of(targets.begin(), targets.end(),
                     [&](const CpuTarget& t) { return t.name == target.name; }))
      targets.push_back(target);
  }
  const auto all = cpu_targets();
  auto strength = [&](const CpuTarget& target) {
    return std::find_if(all.begin(), all.end(), [&](const CpuTarget& t) { return t.name == target.name; }) -
           all.begin();
  };
  std::sort(targets.begin(), targets.end(),
            [&](const CpuTarget& a, const CpuTarget& b) { return strength(a) > strength(b); });
  return targets;
}

package::ManifestFacts facts_of(const CompileOptions& options, const Compilation& made) {
  package::ManifestFacts facts{.model_file = std::filesystem::path(options.model).filename().string(),
                               .model_sha256 = sha256_of_file(options.model),
                               .mode = options.mode,
                               .settings = options.settings,
                               .weights_file = options.weights_file,
                               .tuning = tuning_facts(made)};
  for (const Variant& variant : made.variants) facts.variants.push_back(variant.target.name);
  return facts;
}

PassRunner make_runner(const CompileOptions& options) {
  return PassRunner(
      options.passes, [&](std::string_view stage, size_t done, size_t total, std::string_view what) {
        if (options.progress)
          options.progress(stage, static_cast<int64_t>(done), static_cast<int64_t>(total), what);
      });
}

Compilation run(graph::Graph graph, const CompileOptions& options, Stage last, PassRunner runner) {
  auto tell = [&](std::string_view stage, int64_t done = 0, int64_t total = 0, std::string_view what = {}) {
    if (options.progress) options.progress(stage, done, total, what);
  };
  const auto targets = targets_of(options);
  Compilation made;
  graph::compact(graph);
  made.graph = graph;
  auto stopped = [&] {
    made.times = runner.times();
    made.stopped = true;
    return std::move(made);
  };

  if (!runner.made(passes::graph_passes(), graph)) return stopped();
  if (last == Stage::kGraph) return made;

  if (!runner.run(passes::graph_passes(), graph, {})) return stopped();
  tell("lowering");
  made.loops = ops::lower(graph);
  if (!runner.made(schedule::loop_passes(), made.loops)) return stopped();
  if (last == Stage::kLoops) return made;

  loop::Program program = made.loops;
  if (!runner.run(schedule::loop_passes(), program, {}, &made.decisions)) return stopped();
  for (const CpuTarget& target : targets) {
    Variant& variant = made.variants.emplace_back(Variant{target, program});
    const schedule::Chosen chosen = tuned(variant.program, target, options, made);
    if (!runner.run(schedule::cpu_passes(), variant.program, target.name, target, chosen)) return stopped();
  }
  if (last == Stage::kSchedule) return made;

  codegen::cpu::BuildOptions build{.use_cache = options.use_cache};
  build.progress = [&](size_t done, size_t total) {
    tell("building", static_cast<int64_t>(done), static_cast<int64_t>(total), "kernels");
  };
  tell("packing");
  std::vector<loop::Program*> programs;
  for (Variant& variant : made.variants) {
    codegen::cpu::run_prepack(variant.program, cpu_target("native"), build);
    programs.push_back(&variant.program);
  }
  schedule::plan_weights(programs);
  runner.lap("packing");
  build.host = package::host_options(made.variants, options.weights_file);
  made.built = codegen::cpu::build(made.variants, build);
  runner.lap("building");

  tell("linking");
  made.artifact = package::link(made.variants, made.built, facts_of(options, made));
  runner.lap("linking");
  made.times = runner.times();
  return made;
}

}  // namespace

Compilation compile(const CompileOptions& options, Stage last) {
  try {
    PassRunner runner = make_runner(options);
    if (options.progress) options.progress("reading", 0, 0, options.model);
    frontend::Imported imported = frontend::import_file(options.model, {.dims = options.dims});
    if (!imported.problems.empty()) throw frontend::as_error(imported.problems, options.model);
    Compilation made = run(std::move(imported.graph), options, last, std::move(runner));
    made.summary = std::move(imported.summary);
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

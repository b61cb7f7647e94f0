#include "compiler/compile.h"

#include <algorithm>
#include <filesystem>

#include "compiler/base/sha256.h"
#include "compiler/loop/verify.h"
#include "compiler/ops/op_table.h"
#include "compiler/schedule/choose.h"
#include "compiler/schedule/constants.h"
#include "compiler/schedule/delinearize.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/phases.h"

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

package::ManifestFacts facts_of(const CompileOptions& options, const std::vector<Variant>& variants) {
  package::ManifestFacts facts{.model_file = std::filesystem::path(options.model).filename().string(),
                               .model_sha256 = sha256_of_file(options.model),
                               .mode = options.mode,
                               .settings = options.settings,
                               .weights_file = options.weights_file};
  for (const Variant& variant : variants) facts.variants.push_back(variant.target.name);
  return facts;
}

struct Pass {
  std::string_view name;
  void (*run)(loop::Program& program, Compilation& made);
};

// Constants first, so that fusion does not pull work on weights into the run; layouts after fusion, when the
// nests that wish for one are the final ones.
constexpr Pass kPasses[] = {
    {"constants", [](loop::Program& program, Compilation&) { schedule::hoist_constants(program); }},
    {"fusion", [](loop::Program& program, Compilation& made) { schedule::fuse(program, &made.decisions); }},
    {"dims", [](loop::Program& program, Compilation&) { schedule::delinearize(program); }},
    {"phases", [](loop::Program& program, Compilation&) { schedule::split_phases(program); }},
    {"layouts", [](loop::Program& program, Compilation&) { schedule::choose_layouts(program); }},
};

}  // namespace

Compilation compile(const CompileOptions& options, Stage last) {
  try {
    if (options.progress) options.progress("reading", 0, 0, options.model);
    frontend::Imported imported = frontend::import_file(options.model, {.dims = options.dims});
    if (!imported.problems.empty()) throw frontend::as_error(imported.problems, options.model);
    Compilation made = compile(std::move(imported.graph), options, last);
    made.summary = std::move(imported.summary);
    return made;
  } catch (Error& error) {
    if (error.diagnostic.where.file.empty() && error.diagnostic.kind != ErrorKind::kUsage)
      error.diagnostic.where.file = options.model;
    throw;
  }
}

Compilation compile(graph::Graph graph, const CompileOptions& options, Stage last) {
  auto tell = [&](std::string_view stage, int64_t done = 0, int64_t total = 0, std::string_view what = {}) {
    if (options.progress) options.progress(stage, done, total, what);
  };
  const auto targets = targets_of(options);
  Compilation made{.graph = std::move(graph)};
  graph::compact(made.graph);
  if (last == Stage::kGraph) return made;

  tell("lowering");
  made.loops = ops::lower(made.graph);
  loop::verify(made.loops);
  if (last == Stage::kLoops) return made;

  loop::Program program = made.loops;
  for (const Pass& pass : kPasses) {
    tell("scheduling", &pass - kPasses, std::size(kPasses), pass.name);
    pass.run(program, made);
    loop::verify(program);
  }
  for (const CpuTarget& target : targets) {
    Variant& variant = made.variants.emplace_back(Variant{target, program});
    tell("scheduling", 0, 0, target.name);
    schedule::choose(variant.program, target);
    schedule::plan_memory(variant.program);
    loop::verify(variant.program);
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
  build.host = package::host_options(made.variants, options.weights_file);
  made.built = codegen::cpu::build(made.variants, build);

  tell("linking");
  made.artifact = package::link(made.variants, made.built, facts_of(options, made.variants));
  return made;
}

const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = {
      {"default", "schedules by the analytical model, no measuring; what a compile in CI wants"},
  };
  return kModes;
}

const std::vector<OptionInfo>& options() {
  static const std::vector<OptionInfo> kOptions;
  return kOptions;
}

}  // namespace stridec

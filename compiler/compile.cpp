#include "compiler/compile.h"

#include "compiler/base/diagnostic.h"
#include "compiler/passes/autocast.h"
#include "compiler/pipeline.h"

namespace stridec {
namespace {

PassRunner make_runner(const CompileOptions& options) {
  return PassRunner(
      options.passes, [&](std::string_view stage, size_t done, size_t total, std::string_view what) {
        if (options.progress)
          options.progress(stage, static_cast<int64_t>(done), static_cast<int64_t>(total), what);
      });
}

// tf32 is a GPU format: CPUs compute in f32 instead.
DType factors_of(const std::string& precision, const Targets& targets) {
  const DType factors = passes::precision(precision).factors;
  return factors == DType::kTF32 && targets.gpus.empty() ? DType::kF32 : factors;
}

// `made`: what is known before the passes run.
Compilation run(graph::Graph graph, const CompileOptions& options, Stage last, PassRunner runner,
                Compilation made = {}) {
  Module module{.options = options,
                .targets = select_targets(options.targets, options.cpus, options.gpus),
                .last = last,
                .graph = std::move(graph),
                .programs = {},
                .build = {.use_cache = options.use_cache},
                .hash = {},
                .made = std::move(made)};
  const Options values(options.settings);
  check_options(values, default_pipeline(), module.targets);
  if (last == Stage::kArtifact) module.hash.emplace(options.model);
  Pipeline pipeline = pipeline_until(last);
  if (options.edit_pipeline) options.edit_pipeline(pipeline);
  const PassContext context{.options = values, .factors = factors_of(options.precision, module.targets)};
  module.made.stopped = !run(pipeline, module, runner, context);
  module.made.times = runner.times();
  return std::move(module.made);
}

}  // namespace

Compilation compile(const CompileOptions& options, Stage last) {
  try {
    PassRunner runner = make_runner(options);
    if (options.progress) options.progress("reading", 0, 0, options.model);
    frontend::Imported imported =
        frontend::import_file(options.model, {.dims = options.dims,
                                              .input_values = options.input_values,
                                              .states = options.states,
                                              .refit = options.refit,
                                              .sizes_stay_open = options.sizes_stay_open,
                                              .name = options.name});
    if (!imported.problems.empty()) throw frontend::as_error(imported.problems, options.model);
    Compilation known;
    known.summary = std::move(imported.summary);
    known.facts = std::move(imported.facts);
    known.files = std::move(imported.files);
    known.warnings = std::move(imported.warnings);
    return run(std::move(imported.graph), options, last, std::move(runner), std::move(known));
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

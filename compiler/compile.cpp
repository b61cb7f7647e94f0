#include "compiler/compile.h"

#include "compiler/base/diagnostic.h"
#include "compiler/extensions.h"
#include "compiler/function_flags.h"
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

// The graphs are those of made.functions.
Compilation run_pipeline(std::vector<graph::Graph> graphs, Compilation made, const CompileOptions& options,
                         Stage last, PassRunner runner) {
  Module module{.options = options,
                .targets = select_targets(options.targets, options.cpus, options.gpus),
                .last = last,
                .functions = std::vector<ModuleFunction>(graphs.size()),
                .build = {.use_cache = options.use_cache},
                .made = std::move(made)};
  for (size_t f = 0; f < graphs.size(); ++f) module.functions[f].graph = std::move(graphs[f]);
  const Options values(options.settings);
  check_options(values, default_pipeline(), module.targets);
  if (last == Stage::kArtifact)
    for (size_t f = 0; f < module.functions.size(); ++f)
      module.functions[f].hash.emplace(module.made.functions[f].source.model);
  Pipeline pipeline = pipeline_until(last);
  add_extensions(pipeline, options.extensions);
  if (options.edit_pipeline) options.edit_pipeline(pipeline);
  const PassContext context{.options = values,
                            .factors = factors_of(options.precision, module.targets),
                            .any_gpu = !module.targets.gpus.empty(),
                            .graphs = values.flag("cudagraphs", mode(options.mode).graphs)};
  module.made.stopped = !run(pipeline, module, runner, context);
  if (last == Stage::kGraph && !options.extensions.empty())
    for (size_t f = 0; f < module.functions.size(); ++f)
      module.made.functions[f].graph = std::move(module.functions[f].graph);
  module.made.times = runner.times();
  return std::move(module.made);
}

}  // namespace

Compilation compile(const CompileOptions& options, Stage last) {
  try {
    PassRunner runner = make_runner(options);
    check_extensions(options);
    Compilation made;
    std::vector<graph::Graph> graphs = import_functions(options, made);
    return run_pipeline(std::move(graphs), std::move(made), options, last, std::move(runner));
  } catch (Error& error) {
    if (error.diagnostic.where.file.empty() && error.diagnostic.kind != ErrorKind::kUsage)
      error.diagnostic.where.file = options.entry_points().front().model;
    throw;
  }
}

Compilation compile(graph::Graph graph, const CompileOptions& options, Stage last,
                    std::vector<graph::ModelNode> nodes) {
  Compilation made;
  made.functions.push_back({.source = {.name = "", .model = options.model, .method = options.method},
                            .dims = options.dims,
                            .shapes = options.shapes,
                            .input_values = options.input_values,
                            .nodes = NodeTrace(std::move(nodes))});
  std::vector<graph::Graph> graphs;
  graphs.push_back(std::move(graph));
  return run_pipeline(std::move(graphs), std::move(made), options, last, make_runner(options));
}

}  // namespace stridec

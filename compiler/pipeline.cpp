#include "compiler/pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "compiler/base/diagnostic.h"
#include "compiler/base/parallel.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/derive.h"
#include "compiler/codegen/host.h"
#include "compiler/function_flags.h"
#include "compiler/graph/gradient_marks.h"
#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/loop/module_values.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/manifest_facts.h"
#include "compiler/memory_budget.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/pass_list.h"
#include "compiler/schedule/memory/weight_plan.h"
#include "compiler/schedule/pass_list.h"
#include "compiler/sym/text.h"
#include "compiler/tuned_schedules.h"
#include "compiler/unsupported.h"

namespace stridec {
namespace {

using codegen::cpu::Variant;

constexpr int kGraphs = 8;  // CUDA graphs per context, one for each shape

// ---- passes that create IRs ----

// Calls use(function, its results) for each function.
template <class Use>
void for_each_function(Module& m, Use&& use) {
  for (size_t f = 0; f < m.functions.size(); ++f) use(m.functions[f], m.made.functions[f]);
}

void import_graph(Module& m, const PassContext&) {
  for_each_function(m, [](ModuleFunction& function, FunctionResult& made) {
    made.nodes.imported(function.graph);
    graph::drop_gradient_marks(function.graph);
    graph::eliminate_dead_code(function.graph);
    made.graph = function.graph;
  });
}

void lower(Module& m, const PassContext&) {
  std::vector<const loop::Program*> programs;
  for_each_function(m, [&](ModuleFunction& function, FunctionResult& made) {
    made.loops = ops::lower(function.graph);
    if (const auto problems = unsupported_steps(made.loops, m.targets); !problems.empty())
      throw frontend::as_error(problems, made.source.model);
    function.programs = {{.program = made.loops}};
    programs.push_back(&made.loops);
  });
  loop::module_parameters(programs);  // throws if they, or states, do not agree
  check_sizes(m.options, programs);
}

void apply_layouts(Module& m, const PassContext&) {
  if (m.options.layouts.empty()) return;
  std::vector<FunctionModel> functions;
  std::vector<loop::Program*> programs;
  for_each_function(m, [&](ModuleFunction&, FunctionResult& made) {
    functions.push_back(made.source);
    programs.push_back(&made.loops);
  });
  declare_layouts(m.options, functions, programs);
  loop::module_states(std::vector<const loop::Program*>(programs.begin(), programs.end()));
  for_each_function(m, [](ModuleFunction& function, FunctionResult& made) {
    function.programs.front().program = made.loops;
  });
}

void specialize(Module& m, const PassContext&) {
  for_each_function(m, [&](ModuleFunction& function, FunctionResult& made) {
    for (const loop::SymbolValues& all : m.options.specialize)
      if (const auto sizes = sizes_of(made.loops, all, m.options); !sizes.empty())
        function.programs.push_back(
            {.program = loop::specialized(made.loops, sizes), .when = loop::condition_of(sizes)});
  });
}

void make_gpu_variants(Module& m, const PassContext&) {
  for_each_function(m, [&](ModuleFunction& function, FunctionResult& made) {
    for (const GpuTarget& target : m.targets.gpus)
      made.gpu_variants.push_back({.target = target, .program = function.programs.front().program});
  });
}

void make_cpu_variants(Module& m, const PassContext&) {
  for_each_function(m, [&](ModuleFunction& function, FunctionResult& made) {
    // Emitted kernels hold pointers into the variants, so the vector must not grow later.
    made.variants.reserve(m.targets.cpus.size() * function.programs.size());
    for (const CpuTarget& target : m.targets.cpus)
      for (const Variant& program : function.programs) {
        made.variants.push_back(program);
        made.variants.back().target = target;
      }
  });
}

// ---- passes that need all variants ----

template <class Variants>
void tune_variants(Module& m, Variants FunctionResult::* variants) {
  // Hashing a large model takes as long as compiling it, so it runs in the background, but not while kernels
  // are timed.
  const auto before_measuring = [&] {
    for (ModuleFunction& function : m.functions)
      if (function.hash) function.hash->wait();
  };
  size_t programs = 0, done = 0;
  for (size_t f = 0; f < m.functions.size(); ++f) {
    programs += m.targets.gpus.size() + m.targets.cpus.size() * m.functions[f].programs.size();
    done += m.made.functions[f].tuned.size();
  }
  for (FunctionResult& made : m.made.functions)
    for (size_t v = 0; v < (made.*variants).size(); ++v, ++done) {
      const auto start = std::chrono::steady_clock::now();
      const double seconds = measuring_seconds(m.options.tuning, m.tuning_seconds, programs - done);
      auto& variant = (made.*variants)[v];
      variant.chosen =
          tuned(variant.program, variant.target, m.options, seconds, before_measuring, v == 0, made);
      m.tuning_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
}
void tune_gpu(Module& m, const PassContext&) { tune_variants(m, &FunctionResult::gpu_variants); }
void tune_cpu(Module& m, const PassContext&) {
  tune_variants(m, &FunctionResult::variants);
  for (FunctionResult& made : m.made.functions)
    if (m.explains() && !made.variants.empty()) {
      const Variant& first = made.variants.front();
      made.choices = schedule::explain(first.program, first.target, first.chosen);
    }
}

void plan_scratch(Module& m, const PassContext&) {
  for (FunctionResult& made : m.made.functions)
    for (Variant& variant : made.variants)
      variant.scratch = codegen::cpu::scratch_of(variant.program, variant.target);
}

void emit_cpu(Module& m, const PassContext&) {
  for (FunctionResult& made : m.made.functions)
    for (Variant& variant : made.variants) variant.kernels = codegen::cpu::emit(variant);
}

std::vector<loop::Program*> programs_of(FunctionResult& made) {
  std::vector<loop::Program*> all;
  for (codegen::cuda::Variant& variant : made.gpu_variants) all.push_back(&variant.program);
  for (Variant& variant : made.variants) all.push_back(&variant.program);
  return all;
}

std::vector<loop::Program*> all_programs(Compilation& made) {
  std::vector<loop::Program*> all;
  for (FunctionResult& function : made.functions)
    for (loop::Program* program : programs_of(function)) all.push_back(program);
  return all;
}

void pack(Module& m, const PassContext&) {
  codegen::cpu::BuildOptions build = m.build;
  build.interpreted_statements = 1 << 16;  // takes less time than compiling a kernel
  for (loop::Program* each : all_programs(m.made))
    codegen::cpu::run_prepack(
        *each, each->parameters.empty() ? cpu_target("native") : codegen::cpu::derivation_target(), build);
}

void derive(Module& m, const PassContext&) {
  for (FunctionResult& made : m.made.functions)
    for (loop::Program* each : programs_of(made))
      if (auto derivation = codegen::cpu::derivation_of(*each))
        m.build.derivations[each] = &made.derivations.emplace(each, std::move(*derivation)).first->second;
}

void place_weights(Module& m, const PassContext&) {
  // Functions read their models separately, so that equal weights are at different addresses.
  schedule::plan_weights(all_programs(m.made), m.functions.size() > 1 ? schedule::EqualWeights::kByContents
                                                                      : schedule::EqualWeights::kByAddress);
  for (FunctionResult& made : m.made.functions)
    for (auto& [program, derivation] : made.derivations) codegen::cpu::copy_places(*program, derivation);
}

void emit_gpu(Module& m, const PassContext&) {
  std::vector<const codegen::cuda::Variant*> all;
  for (const FunctionResult& made : m.made.functions)
    for (const codegen::cuda::Variant& variant : made.gpu_variants) all.push_back(&variant);
  m.made.device = codegen::cuda::emit(all);
}

void assemble(Module& m, const PassContext& context) {
  const Mode& chosen = mode(m.options.mode);
  m.build.host = package::host_options(m.made.programs(), m.options.weights_file);
  for (const FunctionResult& made : m.made.functions) m.build.host.declared.push_back(&made.loops);
  m.build.host.metadata = metadata_of(m.options, m.made);
  m.build.host.spin_us = chosen.spin_us;
  m.build.host.thread_cost = chosen.thread_cost;
  m.build.host.graphs = context.graphs ? kGraphs : 0;
  std::vector<codegen::cpu::FunctionVariants> functions;
  auto device = m.made.device.host.begin();
  for (const FunctionResult& made : m.made.functions) {
    const auto end = device + static_cast<std::ptrdiff_t>(made.gpu_variants.size());
    functions.push_back({made.variants, {device, end}});
    device = end;
  }
  m.made.built = codegen::cpu::assemble(functions, m.made.device.tables, m.build);
}

// The option of this name.
codegen::Symbols symbols_of(const CompileOptions& options) {
  const auto given = options.settings.find("symbols");
  if (given == options.settings.end()) return codegen::Symbols::kNames;
  return given->second == "lines"   ? codegen::Symbols::kLines
         : given->second == "names" ? codegen::Symbols::kNames
                                    : codegen::Symbols::kNone;
}

void build(Module& m, const PassContext&) {
  struct Share {
    std::atomic<size_t> done{0}, total{0};
  } device, host;
  const auto counted = [&](Share& share) {
    return [&](size_t done, size_t total) {
      share.done = done, share.total = total;
      m.tell("building", device.done + host.done, device.total + host.total, "kernels");
    };
  };
  m.build.progress = counted(host);
  m.build.lines = symbols_of(m.options) == codegen::Symbols::kLines;
  const codegen::cuda::BuildOptions images{
      .use_cache = m.options.use_cache, .nvrtc = m.options.nvrtc, .progress = counted(device)};
  codegen::cuda::prepare(m.made.device, images);
  // The host program is one long compilation. GPU kernels are compiled in parallel with it.
  for_each_parallel(2, 2, [&](size_t half) {
    if (half == 0)
      codegen::cpu::compile(m.made.built, m.build);
    else
      codegen::cuda::compile(m.made.device, images);
  });
  m.build.progress = {};
}

void link(Module& m, const PassContext&) {
  std::vector<std::string> hashes;
  for (const ModuleFunction& function : m.functions) hashes.push_back(function.hash->get());
  m.made.artifact = package::link(m.made.built, m.made.device, manifest_facts(m.options, m.made, hashes),
                                  symbols_of(m.options));
}

// ---- passes on one program ----

void prepare_host(loop::Program& program, const PassContext&) {
  codegen::lower_copies(program);
  codegen::declare_symbols(program);
}

constexpr Pass kImport = {"import", "graph", RunsOn::kGraph, "The graph as the frontend reads it.",
                          import_graph};
constexpr Pass kLower[] = {
    {"lower", "lowering", RunsOn::kLoops, "Each operator becomes one loop nest.", lower},
    {"declared_layouts", "lowering", RunsOn::kLoops,
     "Give inputs, outputs and states the memory order of --layout.", apply_layouts},
    {"specialize", "lowering", RunsOn::kLoops, "Add programs for the sizes of --specialize.", specialize},
};
constexpr Pass kGpuVariants = {"gpu variants", "scheduling", RunsOn::kGpu, "One program for each GPU target.",
                               make_gpu_variants};
constexpr Pass kGpuTuning = {"gpu tuning", "tuning", RunsOn::kGpu,
                             "Take schedules from the tuning database, or measure them.", tune_gpu};
constexpr Pass kCpuVariants[] = {
    {"variants", "scheduling", RunsOn::kCpu, "One program for each CPU target and specialization.",
     make_cpu_variants},
    {"tuning", "tuning", RunsOn::kCpu, "Take schedules from the tuning database, or measure them.", tune_cpu},
};
void recompute_cpu(Module& m, const PassContext&) {
  if (m.options.memory_budget) recompute_for_cpu(m.made, *m.options.memory_budget);
}
void recompute_gpu(Module& m, const PassContext&) {
  if (m.options.memory_budget) recompute_for_gpu(m.made, *m.options.memory_budget);
}

constexpr Pass kCpuRecompute = {"recompute", "scheduling", RunsOn::kCpu,
                                "Compute tensors again where --activation-memory-budget asks for it.",
                                recompute_cpu};
constexpr Pass kGpuRecompute = {"gpu recompute", "scheduling", RunsOn::kGpu,
                                "Compute tensors again where --activation-memory-budget asks for it.",
                                recompute_gpu};
constexpr Pass kCpuScratch[] = {
    {"copies", "scheduling", RunsOn::kCpu, "Copies become loop nests; symbols of the run are declared.",
     prepare_host},
    {"scratch", "scheduling", RunsOn::kCpu, "Compute the scratch that each kernel needs, from its schedule.",
     plan_scratch},
};
constexpr Pass kCpuText = {"kernels", "scheduling", RunsOn::kCpu, "The text of each kernel.", emit_cpu};
constexpr Pass kArtifact[] = {
    {"packing", "packing", RunsOn::kArtifact, "Run the nests that pack weights.", pack},
    {"derivations", "packing", RunsOn::kArtifact, "Recompute what depends on replaced parameters.", derive},
    {"weights", "packing", RunsOn::kArtifact, "Place weights in the file, equal ones once.", place_weights},
    {"gpu copies", "building", RunsOn::kGpu, "Copies become loop nests; symbols of the run are declared.",
     prepare_host},
    {"gpu kernels", "building", RunsOn::kGpu, "The text of each GPU kernel.", emit_gpu},
    {"host", "building", RunsOn::kArtifact, "The text of the host program, which launches the kernels.",
     assemble},
    {"building", "building", RunsOn::kArtifact, "Compile all texts.", build},
    {"linking", "linking", RunsOn::kArtifact, "Link the library and write the manifest.", link},
};

template <class Rows>
void append(Pipeline& pipeline, const Rows& rows) {
  pipeline.insert(pipeline.end(), std::begin(rows), std::end(rows));
}

// ---- running ----

constexpr IrHooks<graph::Graph> kGraphHooks = {
    [](const graph::Graph& graph, std::string_view after) {
      graph::verify(graph, ops::shape_table(), after);
    },
    [](const graph::Graph& graph) { return graph::to_string(graph); }};
constexpr IrHooks<loop::Program> kLoopHooks = {
    [](const loop::Program& program, std::string_view) { loop::verify(program); },
    [](const loop::Program& program) { return loop::to_string_with_origins(program); }};

// A program that a pass runs on, with the pass's context.
struct Unit {
  loop::Program* program;
  std::string variant;
  PassContext context;
};

// Appends the programs of one function. `name`: of the function, "" if it is the only one.
void append_units(RunsOn where, Module& m, size_t f, const std::string& name, PassContext given,
                  std::vector<Unit>& units) {
  FunctionResult& made = m.made.functions[f];
  const auto label = [&](const std::string& variant) {
    return name.empty() || variant.empty() ? cat(name, variant) : cat(name, ".", variant);
  };
  if (where == RunsOn::kLoops || where == RunsOn::kCpuLoops) {
    if (where == RunsOn::kCpuLoops && m.targets.cpus.empty()) return;
    for (Variant& program : m.functions[f].programs) {
      const bool general = program.when.is_const(1);
      given.decisions = general && m.explains() ? &made.decisions : nullptr;
      units.push_back({&program.program, label(general ? "" : sym::to_string(program.when)), given});
    }
  }
  if (where == RunsOn::kGpu)
    for (codegen::cuda::Variant& variant : made.gpu_variants) {
      given.gpu = &variant.target;
      given.chosen = &variant.chosen;
      const bool first = &variant == &made.gpu_variants.front();
      given.decisions = first && m.explains() ? &made.decisions : nullptr;
      units.push_back({&variant.program, label(variant.target.name), given});
    }
  if (where == RunsOn::kCpu)
    for (Variant& variant : made.variants) {
      given.cpu = &variant.target;
      given.chosen = &variant.chosen;
      given.scratch = &variant.scratch;
      units.push_back({&variant.program, label(variant.target.name), given});
    }
}

// The name of a function in dumps.
std::string label_of(const Module& m, size_t f) {
  return m.functions.size() == 1 ? "" : m.made.functions[f].name();
}

std::vector<Unit> units_of(RunsOn where, Module& m, const PassContext& context) {
  std::vector<Unit> units;
  for (size_t f = 0; f < m.functions.size(); ++f) append_units(where, m, f, label_of(m, f), context, units);
  return units;
}

// The general program that becomes that of the best variant, as far as passes of this kind work on it; null:
// they do not.
const loop::Program* first_program(RunsOn where, const Module& m, size_t f) {
  const FunctionResult& made = m.made.functions[f];
  const bool gpu = !m.targets.gpus.empty();
  if (where == RunsOn::kLoops || (where == RunsOn::kCpuLoops && !gpu))
    return &m.functions[f].programs.front().program;
  if (where == RunsOn::kGpu && gpu) return &made.gpu_variants.front().program;
  if (where == RunsOn::kCpu && !gpu) return &made.variants.front().program;
  return nullptr;
}

// Whether the pass is the last one of its stage on these IRs.
bool ends_stage(const Pipeline& pipeline, size_t at) {
  return at + 1 == pipeline.size() || pipeline[at + 1].runs_on != pipeline[at].runs_on ||
         pipeline[at + 1].stage != pipeline[at].stage;
}

void run_row(const Pass& pass, Module& m, PassRunner& runner, const PassContext& context, bool last) {
  m.pass = pass.name;
  if (const auto* on_module = std::get_if<Pass::OnModule>(&pass.run)) (*on_module)(m, context);
  for (size_t f = 0; pass.runs_on == RunsOn::kGraph && f < m.functions.size(); ++f) {
    graph::Graph& graph = m.functions[f].graph;
    if (const auto* on_graph = std::get_if<Pass::OnGraph>(&pass.run)) (*on_graph)(graph, context);
    runner.changed(pass, graph, label_of(m, f), kGraphHooks, last);
    m.made.functions[f].nodes.after(pass.name, graph, std::exchange(m.functions[f].replaced_by, {}));
  }
  if (pass.runs_on == RunsOn::kArtifact) return runner.changed(pass);
  for (Unit& unit : units_of(pass.runs_on, m, context)) {
    if (std::holds_alternative<Pass::OnProgram>(pass.run))
      schedule::run_on_program(pass, *unit.program, unit.context);
    runner.changed(pass, *unit.program, unit.variant, kLoopHooks, last);
  }
  for (size_t f = 0; f < m.functions.size(); ++f)
    if (const loop::Program* program = first_program(pass.runs_on, m, f))
      m.made.functions[f].nodes.after(pass.name, *program);
}

}  // namespace

Pipeline default_pipeline() {
  Pipeline all = {kImport};
  append(all, passes::graph_passes());
  append(all, kLower);
  append(all, schedule::loop_passes());
  all.push_back(kGpuVariants);
  append(all, schedule::gpu_loop_passes());
  all.push_back(kGpuTuning);
  append(all, schedule::gpu_passes());
  all.push_back(kGpuRecompute);
  append(all, schedule::gpu_memory_passes());
  append(all, schedule::cpu_loop_passes());
  append(all, kCpuVariants);
  append(all, schedule::cpu_passes());
  all.push_back(kCpuRecompute);
  append(all, kCpuScratch);
  append(all, schedule::cpu_memory_passes());
  all.push_back(kCpuText);
  append(all, kArtifact);
  return all;
}

Pipeline pipeline_until(Stage last) {
  Pipeline rows = default_pipeline();
  switch (last) {
    case Stage::kGraph: cut_after(rows, "import"); break;
    case Stage::kLoops: cut_after(rows, "lower"); break;
    case Stage::kSchedule: cut_after(rows, "memory"); break;
    case Stage::kSource:
      cut_after(rows, "host");
      std::erase_if(rows, [](const Pass& pass) { return pass.name == "packing"; });
      break;
    case Stage::kArtifact: break;
  }
  return rows;
}

size_t find_pass(const Pipeline& pipeline, std::string_view name) {
  const auto found =
      std::find_if(pipeline.begin(), pipeline.end(), [&](const Pass& p) { return p.name == name; });
  if (found == pipeline.end())
    fail(ErrorKind::kUsage, "unknown-pass", cat("there is no pass '", name, "'"),
         "'stridec passes' lists them");
  return static_cast<size_t>(found - pipeline.begin());
}

void insert_before(Pipeline& pipeline, std::string_view name, const Pass& pass) {
  pipeline.insert(pipeline.begin() + static_cast<std::ptrdiff_t>(find_pass(pipeline, name)), pass);
}

void insert_after(Pipeline& pipeline, std::string_view name, const Pass& pass) {
  pipeline.insert(pipeline.begin() + static_cast<std::ptrdiff_t>(find_pass(pipeline, name)) + 1, pass);
}

void cut_after(Pipeline& pipeline, std::string_view name) {
  pipeline.erase(pipeline.begin() + static_cast<std::ptrdiff_t>(find_pass(pipeline, name)) + 1,
                 pipeline.end());
}

void check_options(const Options& options, const Pipeline& pipeline, const Targets& targets) {
  const auto runs = [&](const Pass& pass) {
    return !((pass.runs_on == RunsOn::kGpu && targets.gpus.empty()) ||
             ((pass.runs_on == RunsOn::kCpu || pass.runs_on == RunsOn::kCpuLoops) && targets.cpus.empty()));
  };
  for (const auto& [name, value] : options.given()) {
    const auto reads = [&](const Pass& pass) { return pass.option == name; };
    const auto known = std::find_if(stridec::options().begin(), stridec::options().end(),
                                    [&](const OptionInfo& info) { return info.name == name; });
    if (known == stridec::options().end())
      fail(ErrorKind::kUsage, "unknown-option", cat("there is no option '", name, "'"),
           "'stridec options' lists them; write -O name=value");
    const bool of_passes = std::any_of(pipeline.begin(), pipeline.end(), reads);
    const bool used = std::any_of(pipeline.begin(), pipeline.end(),
                                  [&](const Pass& pass) { return reads(pass) && runs(pass); });
    if ((of_passes && !used) || (name == "cudagraphs" && targets.gpus.empty()))
      fail(ErrorKind::kUsage, "useless-option",
           cat("option '", name, "' has no effect for ", targets.gpus.empty() ? "CPUs" : "GPUs"),
           cat("leave it out, or add --target ", targets.gpus.empty() ? "cuda" : "cpu"));
  }
}

bool run(const Pipeline& pipeline, Module& m, PassRunner& runner, PassContext context) {
  for (size_t i = 0; i < pipeline.size(); ++i) {
    const Pass& pass = pipeline[i];
    const auto same_stage = [&](const Pass& other) { return other.stage == pass.stage; };
    const auto before =
        std::count_if(pipeline.begin(), pipeline.begin() + static_cast<std::ptrdiff_t>(i), same_stage);
    const auto all = std::count_if(pipeline.begin(), pipeline.end(), same_stage);
    if (m.options.stage_begins && (i == 0 || !same_stage(pipeline[i - 1])))
      m.options.stage_begins(pass.stage, m.made);
    const bool runs = runner.begin(pass, context, static_cast<size_t>(before), static_cast<size_t>(all));
    if (runs) run_row(pass, m, runner, context, ends_stage(pipeline, i));
    if (runner.stops_after(pass)) return false;
  }
  return true;
}

}  // namespace stridec

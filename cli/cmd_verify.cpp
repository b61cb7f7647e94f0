// verify: compares an artifact, or code that this build generates from a model, with the reference
// interpreter or with given outputs. If they differ, it searches for the first operation that differs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "cli/artifact_file.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/compare.h"
#include "cli/compile_flags.h"
#include "cli/first_difference.h"
#include "cli/given_inputs.h"
#include "cli/library.h"
#include "cli/mapped_text.h"
#include "cli/npz.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/random_inputs.h"
#include "cli/random_values.h"
#include "cli/reference_operators.h"
#include "cli/repro.h"
#include "cli/tolerance.h"
#include "cli/trace_folder.h"
#include "cli/verified_artifact.h"
#include "cli/verified_run.h"
#include "cli/verify_advice.h"
#include "cli/verify_steps.h"
#include "compiler/base/counted.h"
#include "compiler/base/file_hash.h"
#include "compiler/base/files.h"
#include "compiler/base/printable.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/compile.h"
#include "compiler/frontend/parameters.h"
#include "compiler/frontend/sample_inputs.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/walk.h"
#include "compiler/ops/op_table.h"
#include "compiler/passes/autocast.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
struct Flags {
  CompileFlags common;
  std::string artifact, function;  // function: of the artifact; "": the first
  std::vector<std::string> inputs, expected;
  int runs = 3;
  int64_t steps = 0;  // above 0: as many runs in a row, whose states are compared too
  bool runs_given = false;
  uint64_t seed = 0;            // of random inputs
  std::string repro = "repro";  // a folder for what differs
  bool repro_given = false, no_repro = false;
  double tolerance = -1;  // below 0: the default of the model's types
};

constexpr std::chrono::seconds kEnough(20);

// Inputs of one run: from files if given, otherwise random and different in every run.
Tensors inputs_of(const loop::Program& program, const std::vector<loop::ValueRange>& ranges,
                  const std::vector<std::string>& files, const Sizes& sizes, uint64_t draw, int attempt) {
  Tensors inputs;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].empty()) {
      inputs.push_back(random_input(program, i, ranges[i], sizes, i + 100 * draw, attempt));
      continue;
    }
    Array array = read_array(files[i], program[program.inputs[i]].dtype);
    inputs.push_back({array.dtype, std::move(array.shape), std::move(array.bytes)});
  }
  return inputs;
}

// The inputs that the model file has with it; none if they are not all there with the program's types.
std::optional<Tensors> samples_of(const loop::Program& program, const std::string& model,
                                  const std::string& method) {
  const auto samples = frontend::sample_inputs(model, method);
  Tensors inputs;
  for (loop::BufferId id : program.inputs) {
    const auto found = std::ranges::find(samples, program[id].name, &pt2::SampleInput::name);
    if (found == samples.end() || found->dtype != program[id].dtype) return std::nullopt;
    inputs.push_back({found->dtype, found->shape, found->bytes});
  }
  return samples.empty() ? std::nullopt : std::optional(std::move(inputs));
}

Tensors given_outputs(const loop::Program& program, const Flags& flags) {
  const auto names = buffer_names(program, program.outputs);
  const auto files = assign_files(flags.expected, names, "output");
  Tensors outputs;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].empty())
      fail(ErrorKind::kUsage, "missing-output", cat("output '", names[i], "' is not given"),
           cat("give --expect ", names[i], "=file.npy for every output"));
    Array array = read_array(files[i], program[program.outputs[i]].dtype);
    outputs.push_back({array.dtype, std::move(array.shape), std::move(array.bytes)});
  }
  return outputs;
}

Tensors reference_outputs(const loop::Program& program, const Given& given, bool all_given,
                          ProgressPrinter& progress) {
  try {
    return interpret(program, given, progress);
  } catch (Error& error) {
    if (!all_given && error.diagnostic.help.empty())
      error.diagnostic.help =
          "inputs that are not given are random; give ones that fit: --input name=file.npy";
    throw;
  }
}

// ", batch 2, sequence 3"
std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes) text += cat(", ", name, " ", size);
  return text;
}

// `json`: what was compared. Returns it with the result.
Json report(Json json, const Globals& globals, const Json& runs, const std::string& failure) {
  json["pass"] = failure.empty();
  json["runs"] = runs;
  json["failure"] = failure;
  if (!globals.json && !failure.empty())
    std::fprintf(globals.quiet ? stderr : stdout, " FAIL  %s\n", failure.c_str());
  return json;
}

// What --steps compares, in `compared` and as text.
Json verify_in_a_row(const StepsToVerify& what, Json compared, const Origin& origin, const Globals& globals) {
  ProgressPrinter progress(globals);
  VerifiedSteps found = verify_steps(what, progress);
  double of_outputs = 0, of_states = 0;
  for (const Json& step : found.steps) {
    of_outputs = std::max(of_outputs, step["outputs"].get<double>());
    of_states = std::max(of_states, step["states"].get<double>());
  }
  if (!globals.json && !globals.quiet && found.failure.empty())
    std::printf(" ok    %s: largest difference %.1e of an output, %.1e of a state%s\n",
                counted(what.steps, "step").c_str(), of_outputs, of_states,
                found.noisy.empty()
                    ? ""
                    : cat("; not counting the states of ", join(found.noisy, ", "),
                          found.noisy.size() == 1 ? ", whose gradient is" : ", whose gradients are",
                          " 0 but for rounding errors")
                          .c_str());
  if (const std::string why = remedy(origin, ""); !found.failure.empty() && !why.empty())
    found.failure += cat("; ", why);
  compared["steps"] = what.steps;
  compared["states"] = what.reference.states.size();
  compared["noisy"] = found.noisy;
  return report(std::move(compared), globals, found.steps, found.failure);
}

// Throws if a file in the folder of --repro would replace one that is read: the command that verifies an
// earlier failure again reads files of this folder.
void check_repro(const Flags& flags) {
  if (flags.no_repro || !std::filesystem::is_directory(flags.repro)) return;
  std::vector<std::string> inputs = flags.common.files();
  inputs.push_back(flags.artifact);
  for (const std::vector<std::string>& given : {files_named(flags.inputs), files_named(flags.expected)})
    inputs.insert(inputs.end(), given.begin(), given.end());
  std::vector<OutputFile> outputs;
  for (const std::string& file : repro_files(flags.repro))
    outputs.push_back({file, "what differs", "choose another folder: --repro FOLDER"});
  check_outputs(outputs, inputs);
}

// Writes the folder of --repro, and says so in `compared` and in the failure.
void leave_repro(const Flags& flags, const DifferenceSearch& search,
                 const std::optional<FirstDifference>& first, const std::vector<std::string>& names,
                 Json& compared, std::string& failure) {
  if (flags.no_repro || (!first && flags.artifact.empty())) return;
  // A graph file has no texts of kernels.
  const auto& nodes = search.made.main().graph.nodes;
  const bool whole = first && std::ranges::count(nodes, graph::OpKind::kUserKernel, &graph::Node::kind) == 0;
  try {
    check_repro(flags);
    compared["repro"] =
        whole ? write_repro(flags.repro, search, *first, flags.common)
              : write_repro(flags.repro, flags.artifact, names, search.given.inputs, flags.common);
    compared["repro"]["folder"] = flags.repro;
    failure += cat("; '", flags.repro, "' has ", whole ? "the smallest model that differs, and " : "",
                   "its inputs: ", compared["repro"]["command"].get<std::string>());
  } catch (const std::exception& error) {
    failure += cat("; '", flags.repro, "' could not be written: ", error.what(),
                   "; --repro FOLDER names another folder");
  }
}

// A training step is what --steps is about, unless the user names another function.
std::string function_of(const Flags& flags, const Library& library) {
  const bool trains = std::ranges::count(library.functions(), "train_step") > 0;
  return flags.steps > 0 && flags.function.empty() && trains ? "train_step" : flags.function;
}

void open_library(const Flags& flags, std::optional<Library>& library) {
  try {
    library.emplace(flags.artifact, 0);
  } catch (Error& error) {
    Diagnostic& d = error.diagnostic;
    const std::string& model = flags.common.model;
    if (d.code == "not-an-artifact" && std::filesystem::is_regular_file(model) &&
        is_elf(MappedText(model).text()))
      d.help = cat("the model comes first, the artifact second: stridec verify ", flags.artifact, " ", model);
    throw;
  }
}

// Opens the artifact, if one is given, and takes the flags of its compilation into `options`.
void open_artifact(const Flags& flags, const Globals& globals, CompileOptions& options,
                   std::optional<Library>& library, Origin& origin) {
  if (!flags.artifact.empty()) {
    open_library(flags, library);
    library->select(function_of(flags, *library));
    use_references(*library, options.extensions.operators, globals);
    FileHash hash(options.model);
    take_flags(*library, flags.artifact, options);
    take_variant(*library, options);
    origin = origin_of(*library, flags.artifact, flags.common.model, hash.get());
  } else if (std::ranges::count(options.targets, "cpu") == 0) {
    fail(ErrorKind::kUsage, "no-such-target", "code made in memory runs on a CPU, and no CPU is a target",
         "compile an artifact and verify that: stridec compile model.onnx --target cuda -o model.so, then "
         "stridec verify model.onnx model.so");
  }
  options.targets = {"cpu"};  // for code of this build, to compare or to search for the difference
  options.gpus.clear();
  options.sizes_stay_open = !library;
  if (!origin.model.empty()) note(cat("warning[other-model]: ", origin.model), globals);
}

// What is compared, which is printed too.
Json compared_of(const Flags& flags, const Globals& globals, const Library* library, const Compilation& made,
                 const std::string& precision, const Tolerance& tolerance) {
  Json compared = {{"model", flags.common.model},
                   {"artifact", flags.artifact},
                   {"variant", library ? library->variant() : made.main().variants.front().target.name},
                   {"precision", precision},
                   {"tolerance", tolerance.relative},
                   {"tolerance_of", tolerance.reason},
                   {"quantized", tolerance.quantized}};
  const bool named = library && library->functions().size() > 1;
  if (!globals.json && !globals.quiet)
    std::printf(
        "%s %s against %s, %s\n", named ? cat(" ", library->function(), ":").c_str() : "",
        cat(library ? flags.artifact : "this build's code", ", ", compared["variant"].get<std::string>(), ",")
            .c_str(),
        flags.expected.empty() ? "the interpreter" : "the given outputs", to_string(tolerance).c_str());
  return compared;
}

// The expected outputs. Random inputs that contradict each other are drawn again: `draw` gives those of an
// attempt. `fixed`: they are not random.
Tensors expected_outputs(const Flags& flags, const loop::Program& reference,
                         const std::function<Given(int)>& draw, bool fixed, Given& inputs,
                         ProgressPrinter& progress) {
  for (int attempt = 0;; ++attempt) {
    inputs = draw(attempt);
    try {
      return flags.expected.empty() ? reference_outputs(reference, inputs, fixed, progress)
                                    : given_outputs(reference, flags);
    } catch (const Error& error) {
      if (fixed || error.diagnostic.kind != ErrorKind::kDoesNotFit || attempt + 1 == kDraws) throw;
    }
  }
}

// "0.0001 (f32)" if the differences are within the default tolerance, where another one is given.
std::string within_default(const Flags& flags, const VerifiedRun& run, const graph::Graph& graph,
                           const std::string& precision) {
  if (flags.tolerance < 0) return "";
  const Tolerance usual = default_tolerance(graph, passes::precision(precision));
  const bool fits =
      std::ranges::all_of(run.differences, [&](const Difference& d) { return d.error <= usual.relative; });
  return fits ? cat(usual.relative, " (", usual.reason, ")") : "";
}

// A model, and the artifact or the code of this build that is compared with it.
struct Comparison {
  const Flags& flags;
  const Globals& globals;
  const CompileOptions& options;
  Library* library;  // null: there is no artifact
  const Origin& origin;
  const Compilation& made;
  const loop::Program& reference;
  const Tolerance& tolerance;
  ProgressPrinter& progress;
};

// Where the inputs of the runs come from: files, the sizes of drawn inputs, samples.
struct InputSources {
  std::vector<std::string> files;  // by input; "": none
  std::vector<frontend::DimRange> dims;
  std::optional<Tensors> samples;  // of the model file, for the first run

  bool all_given() const { return std::find(files.begin(), files.end(), "") == files.end(); }
};

// Searches for the cause of the difference. Returns the text of the failure; the rest is added to `compared`
// and written to the folder of --repro.
std::string explain_failure(const Comparison& c, const VerifiedRun& run, Json& compared) {
  const Difference worst = run.worst();
  std::string failure = failure_text(run, worst, c.reference[c.reference.outputs[worst.output]].name);
  const DifferenceSearch search{c.made, c.options, run.inputs, c.tolerance, c.progress};
  const auto first = first_difference(search);
  const graph::Graph& graph = c.made.main().graph;
  const CausedBy cause{.artifact = c.flags.artifact,
                       .mode = c.flags.common.mode,
                       .expected = c.flags.expected,
                       .library = c.library,
                       .origin = c.origin,
                       .within = within_default(c.flags, run, graph, c.options.precision)};
  failure += cause_text(cause, first);
  if (first) compared["difference"] = difference_json(graph, *first);
  leave_repro(c.flags, search, first, buffer_names(c.reference, c.reference.inputs), compared, failure);
  return failure;
}

// `start`: of the command. `compared`: see report().
Json verify_runs(const Comparison& c, const InputSources& from, Json compared,
                 std::chrono::steady_clock::time_point start) {
  const Flags& flags = c.flags;
  const loop::Program& reference = c.reference;
  const bool all_given = from.all_given();
  const auto ranges = loop::input_ranges(reference);
  Json runs = Json::array();
  for (int i = 0, count = all_given ? 1 : std::max(1, flags.runs); i < count; ++i) {
    // The number of runs with random inputs is limited by time, unless it is given.
    if (i > 0 && !flags.runs_given && std::chrono::steady_clock::now() - start > kEnough) break;
    const bool sampled = from.samples && i == 0;
    const Sizes chosen = choose_sizes(reference, from.dims, i),
                sizes = all_given || sampled ? Sizes() : chosen;
    const auto draw = [&](int attempt) {
      const uint64_t number = static_cast<uint64_t>(i + 1000 * attempt) + 100'000 * flags.seed;
      Given given;
      given.inputs =
          sampled ? *from.samples : inputs_of(reference, ranges, from.files, sizes, number, attempt);
      given.context = context_sizes_of(reference, given.inputs, chosen);
      return given;
    };
    VerifiedRun run;
    run.want = expected_outputs(flags, reference, draw, all_given || sampled, run.inputs, c.progress);
    run.got = c.library ? run_artifact(*c.library, run.inputs) : run_compiled(c.made, run.inputs);
    judge(run, c.made.main().graph, c.tolerance, !flags.expected.empty(), c.progress);
    const Difference worst = run.worst();
    const double most = run.allowed.empty() ? c.tolerance.relative : run.allowed[worst.output].largest;
    runs.push_back(
        {{"run", i}, {"sizes", sizes}, {"difference", worst.error}, {"mean", worst.mean}, {"allowed", most}});
    if (run.failed()) {
      const std::string failure = explain_failure(c, run, compared);
      return report(compared, c.globals, runs, failure);
    }
    if (!c.globals.json && !c.globals.quiet)
      std::printf(" ok    run %d%s%s: largest difference %.1e, mean %.1e%s\n", i + 1, text_of(sizes).c_str(),
                  sampled ? " (the file's sample inputs)" : "", worst.error, worst.mean,
                  most > c.tolerance.relative ? cat("; roundings can change ", most).c_str() : "");
  }
  return report(compared, c.globals, runs, "");
}

// `origin`: is set once the artifact is read.
Json verify(const Flags& flags, const Globals& globals, Origin& origin) {
  const auto start = std::chrono::steady_clock::now();
  ProgressPrinter progress(globals);
  CompileOptions options = flags.common.options(globals);
  // --dim gives the sizes of the runs. Fixed sizes and ranges are the artifact's, like all other flags of its
  // compilation.
  const auto dims = options.dims;
  std::optional<Library> opened;
  open_artifact(flags, globals, options, opened, origin);
  Library* const library = opened ? &*opened : nullptr;
  const TraceFolder trace(options, flags.common.traced(), globals);
  const Compilation made = compile(options, Stage::kSchedule);
  trace.write(made, Stage::kSchedule);
  print_warnings(made.main().warnings, globals);
  const graph::Graph& graph = made.main().graph;
  const loop::Program reference = reference_of(graph);
  const Tolerance tolerance = flags.tolerance >= 0
                                  ? Tolerance{flags.tolerance, "given", false}
                                  : default_tolerance(graph, passes::precision(options.precision));
  if (library) {
    check_sizes(dims, options.dims, reference);
    check_states(*library, reference);
  }
  InputSources from{.files = assign_files(flags.inputs, buffer_names(reference, reference.inputs), "input"),
                    .dims = dims,
                    .samples = std::nullopt};
  // The first run has the samples of the model file, if the user chooses neither inputs nor sizes.
  if (flags.inputs.empty() && flags.expected.empty() && dims.empty())
    from.samples = samples_of(reference, flags.common.model, options.method);
  Json compared = compared_of(flags, globals, library, made, options.precision, tolerance);
  compared["other_model"] = origin.model;
  if (library && library->functions().size() > 1) compared["function"] = library->function();
  if (flags.steps > 0)
    return verify_in_a_row({.library = *library,
                            .graph = graph,
                            .reference = reference,
                            .tolerance = tolerance.relative,
                            .files = from.files,
                            .dims = dims,
                            .steps = flags.steps,
                            .seed = flags.seed},
                           std::move(compared), origin, globals);
  const Comparison comparison{.flags = flags,
                              .globals = globals,
                              .options = options,
                              .library = library,
                              .origin = origin,
                              .made = made,
                              .reference = reference,
                              .tolerance = tolerance,
                              .progress = progress};
  return verify_runs(comparison, from, std::move(compared), start);
}

Json verify(const Flags& flags, const Globals& globals) {
  Origin origin;
  try {
    return verify(flags, globals, origin);
  } catch (Error& error) {
    Diagnostic& d = error.diagnostic;
    if (!origin.model.empty() || (d.kind == ErrorKind::kMismatch && d.help.empty()))
      d.help = remedy(origin, "one version of stridec compiled the artifact and reads it: report this");
    throw;
  }
}

int finish(const Json& result, const Globals& globals) {
  if (globals.json) std::printf("%s\n", result.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  return result["pass"].get<bool>() ? 0 : static_cast<int>(ErrorKind::kMismatch);
}

// `verify model.so --steps 10` looks for the model in the artifact's folder, under the name in the manifest.
void find_model(Flags& flags) {
  if (!flags.artifact.empty() || !flags.common.model.ends_with(".so")) return;
  flags.artifact = flags.common.model;
  Library library(flags.artifact, 0);
  library.select(function_of(flags, library));
  const std::string name = library.function_manifest()["model"].value("file", "");
  const std::filesystem::path path = std::filesystem::path(flags.artifact).parent_path() / name;
  if (name.empty() || !std::filesystem::exists(path))
    fail(ErrorKind::kUsage, "no-model",
         cat("'", printable(name), "', from which '", flags.artifact,
             "' was compiled, is not in the artifact's folder"),
         cat("write stridec verify MODEL ", flags.artifact, " --steps ", flags.steps));
  flags.common.model = path.string();
}

// `verify model.onnx model.so --function name` is about one function, `verify model.so --function a=a.onnx
// --function b=b.onnx` about each of these.
int run(const Flags& given, const Globals& globals) {
  const std::vector<std::string> functions = given.common.functions;
  Flags one = given;
  one.common.functions.clear();
  if (given.repro_given) check_repro(given);
  if (functions.size() == 1 && functions[0].find('=') == std::string::npos) one.function = functions[0];
  if (one.steps > 0) {
    if (!one.expected.empty())
      fail(ErrorKind::kUsage, "usage", "--steps compares with the interpreter, not with --expect");
    find_model(one);
    if (one.artifact.empty())
      fail(ErrorKind::kUsage, "usage", "--steps needs an artifact",
           "write stridec verify model.onnx model.so --steps 10");
  }
  if (functions.empty() || !one.function.empty()) return finish(verify(one, globals), globals);
  if (!given.artifact.empty() || given.common.model.empty())
    fail(ErrorKind::kUsage, "usage", "--function NAME=MODEL needs one artifact that holds the functions",
         "write stridec verify model.so --function prefill=prefill.onnx --function decode=decode.onnx");
  one.artifact = given.common.model;
  Json all = {{"pass", true}, {"functions", Json::array()}};
  for (const FunctionModel& function : parse_functions(functions)) {
    one.function = function.name;
    one.common.model = function.model;
    all["functions"].push_back(verify(one, globals));
    if (!all["functions"].back()["pass"].get<bool>()) all["pass"] = false;
  }
  return finish(all, globals);
}

}  // namespace

std::function<int()> declare_verify(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  flags->common.declare(app);
  app.add_option("artifact", flags->artifact, "the .so made from it (default: code made now, in memory)");
  app.add_option("-i,--input", flags->inputs,
                 "name=file.npy, or all.npz (inputs that are not given are random, of the sizes of --dim or "
                 "small ones)")
      ->type_name("[NAME=]FILE");
  app.add_option(
         "--expect", flags->expected,
         "the expected outputs, instead of the interpreter's: name=file.npy for every output, or all.npz")
      ->type_name("[NAME=]FILE");
  app.add_option(
         "--repro", flags->repro,
         "where results differ: the folder for the smallest model that differs, its inputs and repro.json")
      ->type_name("FOLDER")
      ->each([flags](const std::string&) { flags->repro_given = true; });
  app.add_flag("--no-repro", flags->no_repro, "write nothing where results differ");
  app.add_option("--runs", flags->runs,
                 "how many random inputs to try (default: 3, fewer where they take long)")
      ->check(above_zero)
      ->type_name("NUMBER")
      ->each([flags](const std::string&) { flags->runs_given = true; });
  app.add_option("--seed", flags->seed, "seed of the random inputs: the same number gives the same values")
      ->type_name("NUMBER");
  app.add_option("--steps", flags->steps,
                 "compare NUMBER runs in a row of an artifact with states: the outputs and all states after "
                 "each run. Of a training these are runs of train_step, unless --function names another "
                 "function. The model may be left out if it is in the artifact's folder")
      ->check(above_zero)
      ->type_name("NUMBER");
  app.add_option(
         "--tolerance", flags->tolerance,
         "the allowed difference, as a share of the largest magnitude in an output (default: by the types "
         "that the model computes in, and more for quantised models as far as roundings change the output)")
      ->check(zero_or_more)
      ->type_name("SHARE");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli

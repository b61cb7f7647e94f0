// verify: an artifact, or what this build makes of a model now, against the reference interpreter or given
// outputs. Where they differ, the first operation that does is looked for.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/library.h"
#include "cli/npy.h"
#include "cli/output.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/compile.h"
#include "compiler/loop/interpret.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using loop::HostTensor;
using Tensors = std::vector<HostTensor>;

struct Flags {
  CompileFlags common;
  std::string artifact;
  std::vector<std::string> inputs, expected;
  int runs = 3;
  double tolerance = 1e-4;
};

struct Difference {
  size_t output = 0;
  double error = 0;  // over the largest magnitude expected; infinite where shapes or dtypes differ
  int64_t element = 0;
  double got = 0, want = 0;
};

// The worst element of one output.
Difference compare(const HostTensor& got, const HostTensor& want) {
  Difference worst;
  if (got.dtype != want.dtype || got.shape != want.shape) return {.error = HUGE_VAL};
  double largest = 0;
  const int64_t count = loop::element_count(want);
  for (int64_t i = 0; i < count; ++i)
    if (const double v = std::abs(loop::get_number(want, i)); std::isfinite(v))
      largest = std::max(largest, v);
  for (int64_t i = 0; i < count; ++i) {
    const double a = loop::get_number(got, i), b = loop::get_number(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error =
        std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) / std::max(largest, 1e-30) : HUGE_VAL;
    if (error > worst.error) worst = {.error = error, .element = i, .got = a, .want = b};
  }
  return worst;
}

Difference compare(const Tensors& got, const Tensors& want) {
  Difference worst;
  for (size_t i = 0; i < want.size(); ++i) {
    Difference d = compare(got[i], want[i]);
    d.output = i;
    if (d.error > worst.error) worst = d;
  }
  return worst;
}

std::string position(const HostTensor& tensor, int64_t element) {
  std::vector<int64_t> at(tensor.shape.size());
  for (size_t d = at.size(); d-- > 0;) {
    at[d] = element % std::max<int64_t>(1, tensor.shape[d]);
    element /= std::max<int64_t>(1, tensor.shape[d]);
  }
  return "[" + join(at, ",", [](int64_t i) { return std::to_string(i); }) + "]";
}

ValueDeclaration declaration(const loop::Program& program, loop::BufferId id) {
  const loop::Buffer& buffer = program[id];
  return {buffer.name, "[" + join(buffer.shape, ", ", [](sym::Expr e) { return sym::to_string(e); }) + "]",
          buffer.dtype, static_cast<int>(buffer.shape.size())};
}

// Inputs of one run: files where they are given, otherwise random and different in every run.
Tensors inputs_of(const loop::Program& program, const Flags& flags, const Sizes& sizes, int run) {
  Tensors inputs;
  for (loop::BufferId id : program.inputs) {
    const ValueDeclaration declared = declaration(program, id);
    Array array;
    for (const auto& text : flags.inputs)
      if (text.substr(0, text.find('=')) == declared.name && text.find('=') != std::string::npos)
        array = read_npy(text.substr(text.find('=') + 1), declared.dtype);
    if (array.bytes.empty())
      array = random_array(declared, sizes, inputs.size() + 100 * static_cast<uint64_t>(run));
    inputs.push_back({array.dtype, array.shape, array.bytes});
  }
  return inputs;
}

Tensors given_outputs(const loop::Program& program, const Flags& flags) {
  Tensors outputs;
  for (loop::BufferId id : program.outputs) {
    const auto file =
        std::find_if(flags.expected.begin(), flags.expected.end(), [&](const std::string& text) {
          return text.substr(0, text.find('=')) == program[id].name && text.find('=') != std::string::npos;
        });
    if (file == flags.expected.end())
      fail(ErrorKind::kUsage, "missing-output", cat("output '", program[id].name, "' is not given"),
           cat("give --expect ", program[id].name, "=file.npy for every output"));
    const Array array = read_npy(file->substr(file->find('=') + 1), program[id].dtype);
    outputs.push_back({array.dtype, array.shape, array.bytes});
  }
  return outputs;
}

Tensors run_compiled(const Compilation& made, const Tensors& inputs) {
  return codegen::cpu::run_compiled(made.variants.front().program, inputs,
                                    {.target = made.variants.front().target});
}

Tensors run_artifact(Library& library, const Tensors& inputs) {
  std::vector<Array> arrays;
  for (const auto& tensor : inputs) arrays.push_back({tensor.dtype, tensor.shape, tensor.bytes});
  Tensors outputs;
  for (auto& array : library.run(arrays))
    outputs.push_back({array.dtype, array.shape, std::move(array.bytes)});
  return outputs;
}

// The graph up to one of its nodes, compiled and interpreted: whether they differ.
bool differs(const graph::Graph& graph, graph::NodeId node, const CompileOptions& options,
             const Tensors& inputs, double tolerance) {
  graph::Graph cut = graph;
  cut.top.results = graph[node].outputs;
  cut.output_names.clear();
  for (size_t i = 0; i < cut.top.results.size(); ++i) cut.output_names.push_back(cat("value", i));
  try {
    const Compilation made = compile(std::move(cut), options, Stage::kSchedule);
    return compare(run_compiled(made, inputs), loop::interpret(made.loops, inputs)).error > tolerance;
  } catch (const Error&) {
    return false;
  }
}

// By halving: the first of the top level's nodes up to which this build's code differs from the interpreter.
std::optional<std::string> first_difference(const graph::Graph& graph, const CompileOptions& options,
                                            const Tensors& inputs, double tolerance) {
  const auto& nodes = graph.top.nodes;
  if (nodes.empty() || !differs(graph, nodes.back(), options, inputs, tolerance)) return std::nullopt;
  size_t low = 0, high = nodes.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (differs(graph, nodes[middle], options, inputs, tolerance))
      high = middle;
    else
      low = middle + 1;
  }
  const graph::Node& node = graph[nodes[high]];
  return cat(node.origin.empty() ? "an operation" : node.origin, ", ", graph::name(node.kind));
}

int report(const Flags& flags, const Globals& globals, const Json& runs, const std::string& failure) {
  if (globals.json) {
    const Json json = {{"model", flags.common.model},
                       {"artifact", flags.artifact},
                       {"tolerance", flags.tolerance},
                       {"pass", failure.empty()},
                       {"runs", runs},
                       {"failure", failure}};
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else if (!failure.empty()) {
    std::printf(" FAIL  %s\n", failure.c_str());
  }
  return static_cast<int>(failure.empty() ? 0 : static_cast<int>(ErrorKind::kMismatch));
}

int run(const Flags& flags, const Globals& globals) {
  CompileOptions options = flags.common.options();
  const Sizes sizes =
      flags.common.dims.find("..") == std::string::npos ? parse_sizes(flags.common.dims) : Sizes();
  options.dims.clear();  // the sizes of the runs, not limits
  const Compilation made = compile(options, Stage::kSchedule);
  std::optional<Library> library;
  if (!flags.artifact.empty()) library.emplace(flags.artifact, 0);
  const int count = flags.inputs.size() == made.loops.inputs.size() ? 1 : std::max(1, flags.runs);
  if (!globals.json)
    std::printf(" %s against %s, %d %s, tolerance %g\n",
                flags.artifact.empty() ? "this build" : flags.artifact.c_str(),
                flags.expected.empty() ? "the interpreter" : "the given outputs", count,
                count == 1 ? "run" : "runs", flags.tolerance);
  Json runs = Json::array();
  for (int i = 0; i < count; ++i) {
    const Tensors inputs = inputs_of(made.loops, flags, sizes, i);
    const Tensors want =
        flags.expected.empty() ? loop::interpret(made.loops, inputs) : given_outputs(made.loops, flags);
    const Tensors got = library ? run_artifact(*library, inputs) : run_compiled(made, inputs);
    if (got.size() != want.size())
      fail(ErrorKind::kMismatch, "output-count",
           cat("the artifact has ", got.size(), " outputs, the model ", want.size()), "compile it again");
    const Difference worst = compare(got, want);
    runs.push_back({{"run", i}, {"difference", worst.error}});
    const std::string& output = made.loops[made.loops.outputs[worst.output]].name;
    if (worst.error <= flags.tolerance) {
      if (!globals.json) std::printf(" ok    run %d: largest difference %.1e\n", i + 1, worst.error);
      continue;
    }
    std::string failure = cat("output '", output, "': ");
    if (got[worst.output].shape != want[worst.output].shape ||
        got[worst.output].dtype != want[worst.output].dtype)
      failure += "its shape or type differs";
    else
      failure += cat(worst.error, " at ", position(want[worst.output], worst.element), " (expected ",
                     worst.want, ", got ", worst.got, ")");
    if (const auto node = first_difference(made.graph, options, inputs, flags.tolerance))
      failure += "; first difference at " + *node;
    else
      failure += library ? "; this build's own code agrees with the interpreter: compile the artifact again"
                         : "; the interpreter agrees with the compiled code";
    return report(flags, globals, runs, failure);
  }
  return report(flags, globals, runs, "");
}

}  // namespace

std::function<int()> declare_verify(CLI::App& app, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  flags->common.declare(app);
  app.add_option("artifact", flags->artifact, "the .so made from it (default: code made now, in memory)");
  app.add_option("-i,--input", flags->inputs, "name=file.npy (others are random; sizes by --dim, or 1)");
  app.add_option("--expect", flags->expected, "name=file.npy for every output, instead of the interpreter's");
  app.add_option("--runs", flags->runs, "how many random inputs to try");
  app.add_option("--tolerance", flags->tolerance,
                 "allowed difference over the largest magnitude of an output");
  return [flags, &globals] { return run(*flags, globals); };
}

}  // namespace stridec::cli

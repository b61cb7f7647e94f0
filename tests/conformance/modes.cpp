#include "tests/conformance/modes.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/compile.h"
#include "compiler/frontend/onnx/import.h"
#include "tests/conformance/other_sizes.h"
#include "tests/support/device_program.h"
#include "tests/support/emulate.h"

namespace stridec::conformance {

namespace fs = std::filesystem;
using loop::HostTensor;

namespace {

constexpr ModeInfo kModes[] = {{"interpreter", Mode::kInterpreter},
                               {"compiled", Mode::kCompiled},
                               {"dynamic", Mode::kDynamic},
                               {"constant", Mode::kConstant},
                               {"cuda", Mode::kCompiled, Machine::kGpu},
                               {"cuda-dynamic", Mode::kDynamic, Machine::kGpu},
                               {"emulated", Mode::kCompiled, Machine::kEmulated},
                               {"emulated-dynamic", Mode::kDynamic, Machine::kEmulated}};

std::string summary(const Diagnostic& d) {
  return cat(d.message, d.where.op.empty() ? "" : cat(" (", d.where.op, ")"));
}

// ---- sizes that mode kDynamic keeps constant ----

// Sizes that determine ranks or numbers of outputs: the length of a list with one entry per axis, the last
// dim of indices with one entry per axis, the dim that distinguishes real and complex values.
struct KnownSize {
  std::string_view op;
  size_t input;
  bool last_only = false;
};
constexpr KnownSize kKnownSizes[] = {{"Reshape", 1},
                                     {"Expand", 1},
                                     {"Tile", 1},
                                     {"ConstantOfShape", 0},
                                     {"Slice", 1},
                                     {"Slice", 2},
                                     {"Slice", 3},
                                     {"Slice", 4},
                                     {"Pad", 1},
                                     {"Pad", 3},
                                     {"Squeeze", 1},
                                     {"Unsqueeze", 1},
                                     {"Split", 1},
                                     {"SplitToSequence", 0},
                                     {"SplitToSequence", 1},
                                     {"Resize", 1},
                                     {"Resize", 2},
                                     {"Resize", 3},
                                     {"Upsample", 1},
                                     {"CenterCropPad", 1},
                                     {"AffineGrid", 1},
                                     {"Col2Im", 1},
                                     {"Col2Im", 2},
                                     {"MaxUnpool", 2},
                                     {"GatherND", 1, true},
                                     {"ScatterND", 1, true},
                                     {"GridSample", 1, true},
                                     {"DFT", 0, true},
                                     {"STFT", 0, true}};

bool wants_known(const onnx::Node& node, size_t input, bool last) {
  if (node.op_type.starts_with("Reduce") && input == 1) return true;
  return std::any_of(std::begin(kKnownSizes), std::end(kKnownSizes), [&](const KnownSize& k) {
    return k.op == node.op_type && k.input == input && (last || !k.last_only);
  });
}

void collect_nodes(const onnx::Graph& graph, std::vector<const onnx::Node*>& out) {
  for (const onnx::Node& node : graph.nodes) {
    out.push_back(&node);
    for (const auto& attribute : node.attributes)
      for (const auto& inner : attribute.graphs) collect_nodes(inner, out);
  }
}

void forget_sizes(onnx::Type& type, const std::function<bool(size_t)>& known = {}) {
  if (type.shape)
    for (size_t d = 0; d < type.shape->size(); ++d)
      if (!known || !known(d)) (*type.shape)[d] = {};
  for (onnx::Type& inner : type.element) forget_sizes(inner);
}

void forget_sizes(onnx::Graph& graph, bool top) {
  for (auto* list : {&graph.outputs, &graph.value_infos})
    for (onnx::ValueInfo& v : *list) forget_sizes(v.type);
  if (!top)
    for (onnx::ValueInfo& v : graph.inputs) forget_sizes(v.type);
  for (onnx::Node& node : graph.nodes)
    for (auto& attribute : node.attributes)
      for (auto& inner : attribute.graphs) forget_sizes(inner, false);
}

// The model with a new symbol for each dim of its inputs. `whole` is the model whose expanded form `model`
// is, or `model` itself; its operators determine which sizes must be constant.
onnx::Model with_symbols(const onnx::Model& model, const onnx::Model& whole) {
  onnx::Model out = model;
  std::vector<const onnx::Node*> nodes;
  collect_nodes(whole.graph, nodes);
  if (&whole != &model) collect_nodes(model.graph, nodes);
  for (size_t i = 0; i < out.graph.inputs.size(); ++i) {
    std::set<std::string> names = {out.graph.inputs[i].name};
    if (i < whole.graph.inputs.size()) names.insert(whole.graph.inputs[i].name);
    onnx::Type& type = out.graph.inputs[i].type;
    const size_t rank = type.shape ? type.shape->size() : 0;
    forget_sizes(type, [&](size_t d) {
      for (const onnx::Node* node : nodes)
        for (size_t k = 0; k < node->inputs.size(); ++k)
          if (names.count(node->inputs[k]) && wants_known(*node, k, d + 1 == rank)) return true;
      return false;
    });
  }
  forget_sizes(out.graph, true);
  return out;
}

// ---- options ----

// The contents of sequences and optionals are given at compile time.
onnx::ImportOptions with_items(const onnx::Model& model, const Data& data, bool symbols) {
  onnx::ImportOptions options;
  for (size_t i = 0; i < std::min(model.graph.inputs.size(), data.inputs.size()); ++i) {
    const onnx::ValueInfo& input = model.graph.inputs[i];
    if (input.type.kind == onnx::Type::Kind::kTensor || input.type.kind == onnx::Type::Kind::kMap) continue;
    onnx::InputItems& items = options.items[input.name];
    items.present = data.inputs[i].present;
    for (const onnx::Tensor& t : data.inputs[i].tensors) {
      items.shapes.emplace_back().emplace();
      for (int64_t d : t.dims)
        items.shapes.back()->push_back(symbols ? onnx::Dim() : onnx::Dim{.value = d, .param = ""});
    }
  }
  return options;
}

bool is_tensor(const onnx::Model& model, size_t input) {
  return model.graph.inputs[input].type.kind == onnx::Type::Kind::kTensor;
}

// Inputs small enough to be parameters instead of data: axes, sizes, scales, regions, flags.
std::vector<std::string> bind_constants(const onnx::Model& model, const Data& data,
                                        onnx::ImportOptions& options) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(model.graph.inputs.size(), data.inputs.size()); ++i) {
    if (!is_tensor(model, i)) continue;
    const onnx::Tensor& t = data.inputs[i].tensors.at(0);
    const bool parameter = i > 0 || (t.dims.empty() && !is_float(t.dtype().value_or(DType::kF32)));
    if (!parameter || !t.dtype() || t.count() > 16) continue;
    names.push_back(model.graph.inputs[i].name);
    options.constants[names.back()] = t;
  }
  return names;
}

void bind_all(const onnx::Model& model, const Data& data, onnx::ImportOptions& options) {
  for (size_t i = 0; i < std::min(model.graph.inputs.size(), data.inputs.size()); ++i)
    if (is_tensor(model, i)) options.constants[model.graph.inputs[i].name] = data.inputs[i].tensors.at(0);
}

// ---- one compilation and run ----

// `file`: the model file, whose hash the artifact contains.
Compilation made_of(const onnx::Model& model, const fs::path& file, const onnx::ImportOptions& options,
                    Stage last, Machine machine = Machine::kCpu) {
  onnx::Imported imported = onnx::import_model(model, options);
  if (!imported.problems.empty()) {
    Diagnostic problem = imported.problems[0];
    problem.message = "import: " + problem.message;
    throw Error(std::move(problem));
  }
  CompileOptions how{.model = file, .passes = {.verify_each = true}};
  if (machine != Machine::kCpu) {
    how.targets = {"cuda"};
    how.gpus = {"sm_90a"};
  }
  return compile(std::move(imported.graph), how, last);
}

using Program = std::function<std::vector<HostTensor>(const std::vector<HostTensor>& inputs)>;

Program machine_code(const Compilation& made, Machine machine, const RunOptions& how) {
  if (machine == Machine::kEmulated) {
    auto variant = std::make_shared<codegen::cuda::Variant>(made.main().gpu_variants.front());
    codegen::cpu::run_prepack(variant->program, cpu_target("native"), {.threads = 1});
    variant->program.prepack.clear();
    return [variant](const std::vector<HostTensor>& inputs) {
      size_t choices = 0;
      auto outputs = test::emulate(variant->program, inputs, variant->target, 0, &choices);
      if (!outputs) fail(ErrorKind::kUnsupported, "run", "not emulated");
      return std::move(*outputs);
    };
  }
  if (machine == Machine::kGpu) {
    auto program = std::make_shared<test::DeviceProgram>(made.main().gpu_variants.front());
    return [program](const std::vector<HostTensor>& inputs) { return program->run(inputs); };
  }
  auto program = std::make_shared<codegen::cpu::CompiledProgram>(
      made.main().variants.front().program,
      codegen::cpu::RunCompiledOptions{
          .build = {.optimize = how.optimize, .kernels_per_object = how.kernels_per_object}});
  return [program](const std::vector<HostTensor>& inputs) { return program->run(inputs); };
}

std::vector<HostTensor> inputs_of(const loop::Program& program, const onnx::Model& model, const Data& data) {
  std::vector<HostTensor> inputs;
  for (loop::BufferId id : program.inputs)
    for (size_t i = 0; i < model.graph.inputs.size(); ++i) {
      const auto& tensors = data.inputs.at(i).tensors;
      const auto& [name, type] = model.graph.inputs[i];
      const auto item = [&](size_t k) {
        return type.kind == onnx::Type::Kind::kMap ? cat(name, k == 0 ? ".keys" : ".values")
                                                   : cat(name, "[", k, "]");
      };
      for (size_t k = 0; k < tensors.size(); ++k)
        if (program[id].name == name || (!is_tensor(model, i) && program[id].name == item(k)))
          inputs.push_back(host(tensors[k]));
    }
  return inputs;
}

// Compares compiled code with the interpreter, with the larger of the tolerance for sums and the test's
// tolerance.
std::string difference_of(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want,
                          const Test& test) {
  for (size_t i = 0; i < got.size(); ++i) {
    Tolerance tolerance = tolerance_of(want[i]);
    if (is_float(want[i].dtype))
      tolerance.of_largest = std::max(tolerance.of_largest, test.tolerance.of_largest);
    if (std::string why = difference(got[i], want[i], tolerance); !why.empty())
      return cat("output ", i, ": ", why);
  }
  return {};
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Attempt {
  const Test& test;
  const onnx::Model& model;
  const Data& data;
  ModeInfo info;
  RunOptions how;

  std::string against_expected(const std::vector<HostTensor>& got) const {
    return data.outputs.empty() ? "" : difference(got, data, test.tolerance);
  }

  // The interpreter's results at other sizes. If the interpreter takes too long, the results of a program
  // compiled for exactly these sizes.
  std::vector<HostTensor> reference(const Compilation& made, const onnx::ImportOptions& options,
                                    const OtherSizes& other) const {
    constexpr double kMuchWork = 2e7;
    if (work(made.main().loops, other.sizes) < kMuchWork)
      return loop::interpret(made.main().loops, other.inputs, {.poison = true});
    const Compilation alone = made_for(options, other, Machine::kCpu);
    return codegen::cpu::run_compiled(alone.main().variants.front().program, other.inputs);
  }

  // Compiles for exactly these sizes.
  Compilation made_for(onnx::ImportOptions options, const OtherSizes& other, Machine machine) const {
    for (const auto& [symbol, size] : other.sizes)
      options.dims.push_back({.name = symbol.name(), .lower = size, .upper = size, .multiple = 1});
    return made_of(model, test.model, options, Stage::kSchedule, machine);
  }

  // Whether two points store to one place because of the data: repeated indices do that, whatever is known
  // about sizes.
  bool races(const onnx::ImportOptions& options, const OtherSizes& other) const {
    try {
      machine_code(made_for(options, other, info.machine), info.machine, how)(other.inputs);
      return false;
    } catch (const Error& e) {
      return e.diagnostic.kind == ErrorKind::kMismatch;
    }
  }

  Outcome at_other_sizes(const Compilation& made, const onnx::ImportOptions& options,
                         const std::vector<HostTensor>& inputs, const Program& program) const {
    std::string why_illegal = std::any_of(made.main().loops.symbols.begin(), made.main().loops.symbols.end(),
                                          [](const loop::Symbol& symbol) { return symbol.input >= 0; })
                                  ? "the sizes fit together in no other way"
                                  : "no input has a size that may differ";
    constexpr double kMuchEmulated = 3e6;
    for (const OtherSizes& other : other_sizes(made.main().loops, inputs)) {
      if (info.machine == Machine::kEmulated && work(made.main().loops, other.sizes) > kMuchEmulated) {
        why_illegal = "other sizes take too long to emulate";
        continue;
      }
      std::vector<HostTensor> want;
      try {
        want = reference(made, options, other);
      } catch (const Error& e) {
        if (e.diagnostic.kind == ErrorKind::kInternal) throw;
        why_illegal = cat("data of the test's sizes alone: ", summary(e.diagnostic));
        continue;
      }
      const std::string at = cat("at ", to_string(other));
      std::vector<HostTensor> got;
      try {
        got = program(other.inputs);
      } catch (const Error& e) {
        const std::string why = summary(e.diagnostic);
        if (e.diagnostic.kind == ErrorKind::kMismatch && races(options, other)) {
          why_illegal = cat("data of the test's sizes alone: ", why);
          continue;
        }
        return {.reason = cat(at, ": ", why, ", but the interpreter takes it")};
      }
      const std::string why = difference_of(got, want, test);
      return {.reason = why.empty() ? "" : cat(at, ": ", why)};
    }
    return {.one_shape = why_illegal};
  }

  Outcome run(const onnx::ImportOptions& options) const {
    const double start = processor_seconds();
    double made = start;
    Outcome out;
    try {
      out = run(options, made);
    } catch (const Error& e) {
      out.reason = summary(e.diagnostic);
    }
    if (made == start) made = processor_seconds();
    out.seconds = made - start;
    return out;
  }

  Outcome run(const onnx::ImportOptions& options, double& compiled) const {
    const bool interpreted = info.mode == Mode::kInterpreter;
    const bool built = info.machine == Machine::kEmulated && builds_for_gpus();
    const Compilation made = made_of(model, test.model, options,
                                     interpreted ? Stage::kLoops
                                     : built     ? Stage::kArtifact
                                                 : Stage::kSchedule,
                                     info.machine);
    const std::vector<HostTensor> inputs = inputs_of(made.main().loops, model, data);
    if (interpreted) {
      compiled = processor_seconds();
      return {.reason = against_expected(loop::interpret(made.main().loops, inputs, {.poison = true}))};
    }
    const Program program = machine_code(made, info.machine, how);
    compiled = processor_seconds();
    Outcome out{.reason =
                    data.outputs.empty()
                        ? difference_of(program(inputs),
                                        loop::interpret(made.main().loops, inputs, {.poison = true}), test)
                        : against_expected(program(inputs))};
    if (info.mode == Mode::kDynamic && out.reason.empty())
      return at_other_sizes(made, options, inputs, program);
    return out;
  }
};

// `model` is the file's model, or that with symbols for its sizes.
Outcome run(const Test& test, const onnx::Model& model, const Data& data, const ModeInfo& info,
            const RunOptions& how) {
  if (data.inputs.size() < model.graph.inputs.size())
    return {.reason = "test data of another type than tensors"};
  const Attempt attempt{test, model, data, info, how};
  onnx::ImportOptions options = with_items(model, data, info.mode == Mode::kDynamic);
  if (info.mode == Mode::kConstant) {
    bind_all(model, data, options);
    return attempt.run(options);
  }
  const Outcome first = attempt.run(options);
  if (first.reason.empty() || !how.bind_constants) return first;
  std::vector<std::string> bound = bind_constants(model, data, options);
  if (bound.empty()) return first;
  Outcome again = attempt.run(options);
  again.seconds = std::max(first.seconds, again.seconds);
  if (!again.reason.empty()) {
    if (again.reason != first.reason) again.reason += "; without constants: " + first.reason;
    return again;
  }
  // Inputs that need not be constants are not listed.
  std::erase_if(bound, [&](const std::string& name) {
    auto entry = options.constants.extract(name);
    Outcome without = attempt.run(options);
    without.seconds = std::max(without.seconds, again.seconds);
    if (!without.reason.empty()) {
      options.constants.insert(std::move(entry));
      return false;
    }
    again = std::move(without);
    return true;
  });
  again.bound = cat(join(bound, ", ", [](const std::string& n) { return n; }), ": ", first.reason);
  return again;
}

}  // namespace

bool builds_for_gpus() {
  static const bool found = [] {
    try {
      codegen::cuda::Nvrtc nvrtc("");
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return found;
}

std::span<const ModeInfo> modes() { return kModes; }

Outcome run(const Test& test, const ModeInfo& info, const RunOptions& options) try {
  const onnx::Model file = onnx::read_model(test.model);
  onnx::Model model = file;
  if (info.mode == Mode::kDynamic) {
    const fs::path unexpanded = unexpanded_model(test);
    model = with_symbols(model, unexpanded.empty() ? model : onnx::read_model(unexpanded));
  }
  std::vector<fs::path> folders = test.data_sets;
  if (folders.empty()) folders.emplace_back();
  Outcome all;
  for (const fs::path& folder : folders) {
    const Outcome one = run(test, model, load(test, folder, file), info, options);
    if (!one.reason.empty()) return one;
    if (!one.bound.empty()) all.bound = one.bound;
    if (!one.one_shape.empty()) all.one_shape = one.one_shape;
    all.seconds = std::max(all.seconds, one.seconds);
  }
  return all;
} catch (const Error& e) {
  return {.reason = summary(e.diagnostic)};
} catch (const std::exception& e) {
  return {.reason = cat("exception: ", e.what())};
}

}  // namespace stridec::conformance

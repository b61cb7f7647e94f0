#include "compiler/frontend/import.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <span>
#include <sstream>

#include "compiler/base/number.h"
#include "compiler/base/pattern.h"
#include "compiler/base/text.h"
#include "compiler/frontend/common/mapped_file.h"
#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/read.h"
#include "compiler/frontend/onnx/sniff.h"
#include "compiler/frontend/parameters.h"
#include "compiler/frontend/pt2/import.h"
#include "compiler/frontend/torchscript/import.h"
#include "compiler/graph/serialize.h"
#include "compiler/ops/op_table.h"

namespace stridec::frontend {
namespace {

int64_t parse_size(std::string_view text, std::string_view item) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    fail(ErrorKind::kUsage, "bad-dim",
         cat("'", item, "' is not of the form name=size, name=low..high or name=low..high%multiple"),
         "write --dim batch=1..64,sequence=1..512%8");
  return value;
}

void add_tensor(const onnx::Tensor& tensor, ModelFacts& facts) {
  facts.parameters += tensor.count();
  facts.parameter_bytes += tensor.bytes.size;
}

void add_graph(const onnx::Graph& graph, ModelFacts& facts) {
  for (const onnx::Tensor& tensor : graph.initializers) add_tensor(tensor, facts);
  for (const onnx::Node& node : graph.nodes) {
    ++facts.operators[node.domain.empty() ? node.op_type : cat(node.domain, ":", node.op_type)];
    for (const onnx::Attribute& attribute : node.attributes) {
      for (const onnx::Graph& inner : attribute.graphs) add_graph(inner, facts);
      if (node.op_type != "Constant") continue;
      for (const onnx::Tensor& tensor : attribute.tensors) add_tensor(tensor, facts);
      const size_t numbers = attribute.ints.size() + attribute.floats.size();
      facts.parameters += static_cast<int64_t>(numbers);
      facts.parameter_bytes += 8 * attribute.ints.size() + 4 * attribute.floats.size();
    }
  }
}

ModelFacts facts_of(const onnx::Model& model) {
  ModelFacts facts;
  add_graph(model.graph, facts);
  facts.metadata = model.metadata;
  return facts;
}

// Of a graph that stridec wrote: its own operations, and its constants.
ModelFacts facts_of(const graph::Graph& graph) {
  ModelFacts facts;
  for (const graph::Node& node : graph.nodes)
    if (node.kind != graph::OpKind::kConstant) ++facts.operators[std::string(graph::name(node))];
  for (const graph::Value& value : graph.values)
    if (value.data) {
      facts.parameter_bytes += value.data->size;
      facts.parameters += static_cast<int64_t>(value.data->size) / byte_size(value.type.dtype);
    }
  return facts;
}

// Whether exporters give this name to every model.
bool says_nothing(std::string name) {
  constexpr std::string_view kOfExporters[] = {
      "",           "graph",      "main",       "main_graph", "main_subgraph",    "model",    "onnx",
      "onnx-model", "onnx_graph", "onnx_model", "tf2onnx",    "torch-jit-export", "torch_jit"};
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::count(kOfExporters, name) > 0;
}

std::string summarize(const onnx::Model& model, const ModelFacts& facts) {
  return cat("opset ", model.opset(), ", ", model.node_count, " nodes, weights ",
             human_bytes(facts.parameter_bytes));
}

Imported import_graph(const std::string& path, const graph::Data& file, const ImportOptions& options) {
  Imported out{.graph = graph::deserialize(file, ops::shape_table()),
               .problems = {},
               .warnings = {},
               .facts = {},
               .summary = {},
               .files = {path}};
  for (const InputValue& value : options.input_values)
    if (options.absent) options.absent->insert(cat("--input-value ", value.name));
  if (!options.input_values.empty() && !options.absent)
    fail(ErrorKind::kUsage, "bad-input-value", "a serialized graph has its inputs' values in it, or none",
         "give --input-value where the graph is written from the ONNX model");
  graph::NamedSizes sizes(options.dims, options.sizes_stay_open);
  sizes.restrict(out.graph);
  sizes.check_used(options.absent);
  for (const graph::Value& value : out.graph.values) graph::check_size(value.type);
  make_parameters(out.graph, options.refit);
  out.facts = facts_of(out.graph);
  out.nodes = graph::origins_of(out.graph);
  out.summary = cat("serialized graph, ", out.graph.nodes.size(), " nodes, ", human_bytes(file.size));
  return out;
}

}  // namespace

std::vector<DimRange> parse_dims(std::string_view text) {
  std::vector<DimRange> dims;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text = item.size() == text.size() ? std::string_view() : text.substr(item.size() + 1);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) parse_size("", item);
    DimRange dim{.name = std::string(item.substr(0, equals))};
    std::string_view range = item.substr(equals + 1);
    if (const size_t percent = range.find('%'); percent != std::string_view::npos) {
      dim.multiple = parse_size(range.substr(percent + 1), item);
      if (dim.multiple == 0) parse_size("", item);
      range = range.substr(0, percent);
    }
    const size_t dots = range.find("..");
    if (dots == std::string_view::npos) {
      dim.lower = dim.upper = parse_size(range, item);
    } else {
      if (dots > 0) dim.lower = parse_size(range.substr(0, dots), item);
      if (dots + 2 < range.size()) dim.upper = parse_size(range.substr(dots + 2), item);
    }
    if (dim.lower && dim.upper && *dim.lower > *dim.upper)
      fail(ErrorKind::kUsage, "bad-dim", cat("'", item, "' is an empty range"));
    if (dim.upper && *dim.upper / dim.multiple * dim.multiple < dim.lower.value_or(0))
      fail(ErrorKind::kUsage, "bad-dim",
           cat("'", item, "': no multiple of ", dim.multiple, " is in the range"));
    if (std::any_of(dims.begin(), dims.end(), [&](const DimRange& other) { return other.name == dim.name; }))
      fail(ErrorKind::kUsage, "bad-dim", cat("'", dim.name, "' is named twice"),
           "give one range for each size");
    dims.push_back(std::move(dim));
  }
  return dims;
}

std::string to_string(const DimRange& dim) {
  const auto text = [](const std::optional<int64_t>& bound) {
    return bound ? std::to_string(*bound) : std::string();
  };
  std::string out = dim.fixed() ? text(dim.lower) : cat(text(dim.lower), "..", text(dim.upper));
  if (dim.multiple > 1) out += cat("%", dim.multiple);
  return out;
}

InputValue parse_input_value(std::string_view text) {
  const auto bad = [&] {
    fail(ErrorKind::kUsage, "bad-input-value",
         cat("'", text, "' is not of the form name=number, or name=number,number,..."),
         "write --input-value sr=16000");
  };
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) bad();
  InputValue out{.name = std::string(text.substr(0, equals)), .values = {}};
  std::string_view rest = text.substr(equals + 1);
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    int64_t value = item == "true";
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    const bool word = item == "true" || item == "false";
    if (!word && (error != std::errc() || end != item.data() + item.size())) bad();
    out.values.push_back(value);
    if (item.size() == rest.size()) return out;
    rest.remove_prefix(item.size() + 1);
  }
}

std::string to_string(const InputValue& value) {
  return join(value.values, ",", [](int64_t each) { return std::to_string(each); });
}

namespace {

using Names = std::set<std::string, std::less<>>;

// Whether a weight that no node updates is trained. `buffers`: weights that are not parameters.
bool is_trained(const TrainingImport& training, std::string_view name, const graph::Type& type,
                const Names& buffers) {
  if (!is_float(type.dtype) || matches_any(training.frozen, name)) return false;
  return type.shape.empty() || buffers.contains(name) ? std::ranges::count(training.trainable, name) > 0
                                                      : matches_any(training.trainable, name);
}

// Every pattern of --trainable and --freeze selects a weight: a misspelt one would go unnoticed.
void check_selection(const TrainingImport& training, const Names& weights) {
  std::vector<std::string> without;
  const auto check = [&](const std::vector<std::string>& patterns, const char* flag) {
    for (const std::string& pattern : patterns)
      if (pattern != "*" && std::ranges::none_of(weights, [&](const std::string& name) {
            return matches_pattern(pattern, name);
          }))
        without.push_back(cat(flag, " '", pattern, "'"));
  };
  check(training.trainable, "--trainable");
  check(training.frozen, "--freeze");
  if (!without.empty())
    fail(ErrorKind::kUsage, "bad-train", cat("the model has no weight for ", join(without, ", ")),
         "'stridec inspect MODEL --stage=graph' lists weights by name");
}

// Constants that `apart` names are imported as parameters, so that each is a value of its own, and then
// become constants.
class Apart {
 public:
  explicit Apart(const ImportOptions& options) : options_(options) {}

  bool takes(std::string_view name, const graph::Type& type) {
    if (!options_.training || !is_float(type.dtype) || type.shape.size() < 2 ||
        !matches_any(options_.training->apart, name))
      return false;
    names_.emplace(name);
    return true;
  }

  void release(graph::Graph& graph) const {
    for (graph::Value& value : graph.values)
      if (names_.contains(value.name)) value.replaceable = false;
  }

 private:
  const ImportOptions& options_;
  Names names_;
};

// Weights that PyTorch's exporter says are buffers or constants of the module. Its text has a line for each:
// "b_mask: BUFFER target='mask' persistent=False".
Names buffers_of(const onnx::Graph& graph) {
  Names names;
  const auto found = graph.metadata.find("pkg.torch.export.ExportedProgram.graph_signature");
  std::istringstream lines(found == graph.metadata.end() ? "" : found->second);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find(" target='"), end = line.find('\'', begin + 9);
    if (begin == std::string::npos || end == std::string::npos) continue;
    if (line.find(": PARAMETER ") == std::string::npos) names.insert(line.substr(begin + 9, end - begin - 9));
  }
  return names;
}

// The running statistics of batch normalizations.
void add_statistics(const onnx::Graph& graph, Names& names) {
  for (const onnx::Node& node : graph.nodes) {
    if (node.op_type == "BatchNormalization" && node.inputs.size() == 5)
      names.insert({node.inputs[3], node.inputs[4]});
    for (const onnx::Attribute& attribute : node.attributes)
      for (const onnx::Graph& inner : attribute.graphs) add_statistics(inner, names);
  }
}

Imported import_pt2(const std::string& path, const graph::Data& file, const ImportOptions& options) {
  pt2::ImportOptions own{.dims = options.dims,
                         .input_values = {},
                         .replaceable = {},
                         .only_parameters = options.training.has_value(),
                         .sizes_stay_open = options.sizes_stay_open,
                         .missing_weights_are_zero = options.missing_weights_are_zero,
                         .weights = options.weights,
                         .program = options.method,
                         .torch_random = options.torch_random,
                         .absent = options.absent,
                         .operators = options.operators};
  for (const InputValue& value : options.input_values) own.input_values[value.name] = value.values;
  if (!options.refit.empty())
    own.replaceable = [&](std::string_view name, const graph::Type& type) {
      return selects(options.refit, name, type);
    };
  Apart apart(options);
  Names weights;
  if (options.training)
    own.replaceable = [&](std::string_view name, const graph::Type& type) {
      weights.emplace(name);
      return is_trained(*options.training, name, type, {}) || apart.takes(name, type);
    };
  pt2::Imported imported = pt2::import_program(path, file, own);
  if (options.training && imported.problems.empty()) check_selection(*options.training, weights);
  apart.release(imported.graph);
  ModelFacts facts = facts_of(imported.graph);
  return {std::move(imported.graph), std::move(imported.problems), std::move(imported.warnings),
          std::move(facts),          std::move(imported.summary),  {path},
          std::move(imported.nodes), std::move(imported.unknown)};
}

Imported import_torchscript(const std::string& path, const graph::Data& file, const ImportOptions& options) {
  torchscript::ImportOptions own{.dims = options.dims,
                                 .shapes = {},
                                 .input_values = {},
                                 .replaceable = {},
                                 .sizes_stay_open = options.sizes_stay_open,
                                 .absent = options.absent,
                                 .operators = options.operators,
                                 .method = options.method.empty() ? "forward" : options.method,
                                 .torch_random = options.torch_random};
  for (const InputShape& shape : options.shapes) own.shapes[shape.name] = {shape.dtype, shape.sizes};
  for (const InputValue& value : options.input_values) own.input_values[value.name] = value.values;
  if (!options.refit.empty())
    own.replaceable = [&](std::string_view name, const graph::Type& type) {
      return selects(options.refit, name, type);
    };
  torchscript::Imported imported = torchscript::import_module(path, file, own);
  ModelFacts facts = facts_of(imported.graph);
  return {std::move(imported.graph),
          std::move(imported.problems),
          std::move(imported.warnings),
          std::move(facts),
          std::move(imported.summary),
          {path},
          {},
          std::move(imported.unknown)};
}

// Of files with one entry point.
void refuse_method(const ImportOptions& options) {
  if (!options.method.empty())
    fail(ErrorKind::kUsage, "no-method",
         cat("--method ", options.method, ": the model is not a PyTorch file, and has no methods"),
         "its only entry point is compiled without --method");
}

// Of files that have their weights themselves, or name the files that do.
void refuse_weights(const ImportOptions& options) {
  if (options.weights)
    fail(ErrorKind::kUsage, "bad-weights", "--weights-from: the model has its weights itself",
         "the flag is for .pt2 programs that were exported from fake tensors");
}

// Draws of other models have no generator to agree with.
void refuse_torch_random(const ImportOptions& options) {
  if (options.torch_random)
    fail(ErrorKind::kUsage, "bad-option", "-O fallback_random: the model is not a PyTorch file",
         "its draws are those of a generator of its own");
}

// The other formats say the types of their inputs themselves.
void refuse_shapes(const ImportOptions& options) {
  for (const InputShape& shape : options.shapes) {
    if (!options.absent)
      fail(ErrorKind::kUsage, "bad-shape",
           cat("--shape ", shape.name, ": the model says the shapes of its inputs"),
           "fix its named sizes by --dim name=size");
    options.absent->insert(cat("--shape ", shape.name));
  }
}

Imported import_onnx(const std::string& path, const graph::Data&, const ImportOptions& options) {
  const onnx::Model model = onnx::read_model(
      path, {.missing_weights_are_zero = options.missing_weights_are_zero, .operators = options.operators});
  onnx::ImportOptions onnx_options{.dims = options.dims,
                                   .constants = {},
                                   .input_values = {},
                                   .items = {},
                                   .sizes_stay_open = options.sizes_stay_open,
                                   .absent = options.absent,
                                   .operators = options.operators};
  if (!options.refit.empty())
    onnx_options.replaceable = [&](std::string_view name, const graph::Type& type) {
      return selects(options.refit, name, type);
    };
  Names weights, statistics, buffers;
  Apart apart(options);
  if (options.training) {
    onnx_options.training_form = options.training->training_form;
    for (const onnx::Tensor& tensor : model.graph.initializers) weights.insert(tensor.name);
    add_statistics(model.graph, statistics);
    buffers = buffers_of(model.graph);
    onnx_options.replaceable = [&](std::string_view name, const graph::Type& type) {
      return weights.contains(name) &&
             (statistics.contains(name)
                  ? !matches_any(options.training->frozen, name)
                  : is_trained(*options.training, name, type, buffers) || apart.takes(name, type));
    };
  }
  for (const InputValue& value : options.input_values) onnx_options.input_values[value.name] = value.values;
  // ONNX's checker gives better messages about a node than a failed import, so its findings come first.
  std::vector<Diagnostic> problems = onnx::check_model(model);
  const auto is_known = [&, checked = problems.size()](const Diagnostic& problem) {
    const auto end = problems.begin() + static_cast<ptrdiff_t>(checked);
    return !problem.where.node.empty() && std::any_of(problems.begin(), end, [&](const Diagnostic& other) {
      return other.where.node == problem.where.node;
    });
  };
  onnx::Imported imported = onnx::import_model(model, onnx_options);
  if (options.training && imported.problems.empty() && problems.empty())
    check_selection(*options.training, weights);
  apart.release(imported.graph);
  for (auto& problem : imported.problems) {
    if (problem.where.file.empty()) problem.where.file = path;
    if (!is_known(problem)) problems.push_back(std::move(problem));
  }
  std::vector<std::string> files = model.external_files;
  files.insert(files.begin(), path);
  ModelFacts facts = facts_of(model);
  std::string summary = summarize(model, facts);
  return {std::move(imported.graph), std::move(problems),        std::move(imported.warnings),
          std::move(facts),          std::move(summary),         std::move(files),
          std::move(imported.nodes), std::move(imported.unknown)};
}

bool is_serialized(const graph::Data& file) { return graph::is_serialized(file.bytes, file.size); }

// ONNX has no signature, so its row is the last one and takes what no other takes.
struct Format {
  const char* name;
  bool (*sniff)(const graph::Data& file);
  Imported (*import)(const std::string& path, const graph::Data& file, const ImportOptions& options);
  bool untyped = false;                         // --shape says the shapes of the inputs
  bool methods = false, lacks_weights = false;  // the file may have several entry points, and no weights
};
constexpr Format kFormats[] = {
    {"serialized graph", is_serialized, import_graph},
    {"PyTorch program", pt2::is_program, import_pt2, false, true, true},
    {"TorchScript module", torchscript::is_module, import_torchscript, true, true},
    {"ONNX", [](const graph::Data&) { return true; }, import_onnx},
};

// Exporters write an ONNX model's fields in order, and the first one is its version: a varint with tag 8.
bool may_be_onnx(const graph::Data& file) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(file.bytes), file.size);
  return file.size > 2 && file.bytes[0] == 8 && onnx::sniff(bytes).what.empty();
}

Imported import_any(const std::string& path, const ImportOptions& options) {
  const auto mapped = map_file(path);
  const graph::Data file{.owner = mapped,
                         .bytes = reinterpret_cast<const uint8_t*>(mapped->bytes.data()),
                         .size = mapped->bytes.size()};
  for (const Format& format : kFormats) {
    if (!format.sniff(file)) continue;
    if (!format.untyped) refuse_shapes(options);
    if (!format.methods) {
      refuse_method(options);
      refuse_torch_random(options);
    }
    if (!format.lacks_weights) refuse_weights(options);
    return format.import(path, file, options);
  }
  return {};
}

}  // namespace

std::string model_kind(std::string_view file) {
  const graph::Data data{
      .owner = nullptr, .bytes = reinterpret_cast<const uint8_t*>(file.data()), .size = file.size()};
  for (const Format& format : kFormats)
    if (&format != std::prev(std::end(kFormats)) && format.sniff(data)) return cat("a ", format.name);
  return may_be_onnx(data) ? "an ONNX model" : "";
}

Imported import_file(const std::string& path, const ImportOptions& options) {
  Imported out = import_any(path, options);
  if (!options.name.empty() && says_nothing(out.graph.name)) out.graph.name = options.name;
  if (out.problems.empty()) {
    keep_states(out.graph, options.states, options.absent);
    check_parameters(out.graph, options.refit, options.absent);
  }
  return out;
}

std::vector<OperatorInfo> operators() { return onnx::operators(); }

Error as_error(const std::vector<Diagnostic>& problems, const std::string& file) {
  constexpr size_t kMostNotes = 20;
  Diagnostic all = problems.front();
  for (size_t i = 1; i < problems.size() && i <= kMostNotes; ++i)
    all.notes.push_back(cat("also ", problems[i].where.node, ": ", problems[i].message));
  if (problems.size() > 1)
    all.notes.push_back(cat(problems.size(), " problems in all; 'stridec check ", file, "' lists them"));
  return Error(std::move(all));
}

}  // namespace stridec::frontend

#include "compiler/frontend/pt2/importer.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/user_call.h"
#include "compiler/frontend/pt2/argument_names.h"
#include "compiler/frontend/pt2/expression.h"
#include "compiler/frontend/pt2/json.h"
#include "compiler/frontend/pt2/size_ops.h"
#include "compiler/frontend/pt2/weights.h"
#include "compiler/sym/text.h"

namespace stridec::pt2 {
namespace {

using aten::Value;
using Kind = Argument::Kind;

constexpr const char* kOps = "torch.ops.";
constexpr size_t kMostProblems = 1000;

// The line of the user's program: the last one of the trace outside of PyTorch, or the last one.
std::string source_line(const std::string& trace) {
  std::string last, own;
  size_t at = 0;
  while (at < trace.size()) {
    const size_t end = std::min(trace.find('\n', at), trace.size());
    std::string line = trace.substr(at, end - at);
    at = end + 1;
    const size_t text = line.find_first_not_of(' ');
    if (text == std::string::npos || line.compare(text, 4, "File") != 0) continue;
    last = line.substr(text);
    if (last.find("/torch/") == std::string::npos) own = last;
  }
  return own.empty() ? last : own;
}

bool failed(const Value& v) {
  if (v.kind == Value::Kind::kFailed) return true;
  for (const Value& item : v.items)
    if (failed(item)) return true;
  return false;
}

Value other(std::string text) {
  Value v;
  v.kind = Value::Kind::kOther;
  v.text = std::move(text);
  return v;
}

std::string memory_format(int64_t number) {
  switch (number) {
    case 1: return "contiguous";
    case 2: return "channels_last";
    case 3: return "channels_last_3d";
    default: return "preserve";
  }
}

}  // namespace

std::string short_target(const std::string& target) {
  return target.starts_with(kOps) ? target.substr(std::string(kOps).size()) : target;
}

const aten::Schema* schema_of(const std::string& target) {
  if (!target.starts_with(kOps)) return nullptr;
  const std::string rest = short_target(target);
  const size_t first = rest.find('.'),
               second = rest.find('.', first == std::string::npos ? first : first + 1);
  if (second == std::string::npos) return nullptr;
  return aten::find_schema(rest.substr(0, first), rest.substr(first + 1, second - first - 1),
                           rest.substr(second + 1));
}

std::string user_name(const std::string& target) {
  if (!target.starts_with(kOps)) return "";
  const std::string rest = short_target(target);
  const size_t first = rest.find('.');
  if (first == std::string::npos) return "";
  return cat(rest.substr(0, first), "::", rest.substr(first + 1, rest.find('.', first + 1) - first - 1));
}

bool is_supported(const std::string& target) {
  if (is_size_op(target) || is_higher_order(target)) return true;
  const aten::Schema* schema = schema_of(target);
  return schema && aten::find_row(*schema);
}

std::optional<sym::Expr> Importer::expression(const Size& size) const {
  if (size.value) return *size.value;
  return parse_expression(size.text, [&](const std::string& name) -> std::optional<sym::Expr> {
    const auto found = symbols.find(name);
    return found == symbols.end() ? std::nullopt : std::optional(found->second);
  });
}

Value Importer::value_of(const Argument& a, const Scope& scope) const {
  switch (a.kind) {
    case Kind::kNone: return {};
    case Kind::kTensor:
    case Kind::kSymInt:
    case Kind::kSymFloat:
    case Kind::kSymBool: {
      const auto found = scope.find(a.text);
      if (found == scope.end()) malformed(cat("'", a.text, "' is not defined"));
      return found->second;
    }
    case Kind::kInt: return Value::integer_of(a.integer);
    case Kind::kBool: return Value::condition(a.integer);
    case Kind::kFloat: return Value::number_of(a.number);
    case Kind::kString: return Value::string(a.text);
    case Kind::kComplex: {
      Value v = Value::number_of(a.number);
      v.kind = Value::Kind::kComplex;
      v.imaginary = a.imaginary;
      return v;
    }
    case Kind::kScalarType: {
      const auto type = element_type(static_cast<int>(a.integer));
      if (!type)
        fail(ErrorKind::kUnsupported, "unsupported-dtype",
             cat("elements of type ", scalar_type_name(static_cast<int>(a.integer)), " are not supported"));
      Value v = Value::of_dtype(type->dtype);
      v.complex_dtype = type->complex;
      return v;
    }
    case Kind::kMemoryFormat: return other(memory_format(a.integer));
    case Kind::kLayout: return other("layout");
    case Kind::kDevice: return other(a.text);
    case Kind::kList: {
      std::vector<Value> items;
      for (const Argument& item : a.items) items.push_back(value_of(item, scope));
      return Value::list(std::move(items));
    }
    case Kind::kGraph: return other(a.text);
    case Kind::kOther:
      fail(ErrorKind::kUnsupported, "unsupported-argument", cat("an argument of kind ", a.text));
  }
  return {};
}

// Floats become the dtype of the result, as torch.autocast does for the operators in its lists. For the
// others the result has the operands' dtype anyway.
void Importer::cast_operands(const Graph& graph, const Node& node, std::vector<aten::NamedValue>& args) {
  if (node.outputs.empty() || node.outputs[0].kind != Kind::kTensor) return;
  const auto meta = graph.tensors.find(node.outputs[0].text);
  const auto type = meta == graph.tensors.end() ? std::nullopt : element_type(meta->second.scalar_type);
  if (!type || type->complex || !is_float(type->dtype)) return;
  const auto convert = [&](Value& v) {
    if (!v.is_tensor() || v.tensor.complex || v.tensor.wrapped) return;
    const ops::Term t = aten::read(b, v.tensor);
    if (is_float(t.dtype()) && t.dtype() != type->dtype && t.dtype() != DType::kF64)
      v = Value(ops::cast(t, type->dtype, false));
  };
  for (aten::NamedValue& arg : args) {
    convert(arg.value);
    for (Value& item : arg.value.items) convert(item);
  }
}

std::vector<aten::NamedValue> Importer::arguments_of(const Node& node, const Scope& scope) const {
  std::vector<aten::NamedValue> args;
  for (const NamedArgument& input : node.inputs) args.push_back({input.name, value_of(input.value, scope)});
  return args;
}

std::vector<Value> Importer::call_user(const Node& node, const Scope& scope) {
  const std::vector<aten::NamedValue> args = arguments_of(node, scope);
  for (const aten::NamedValue& v : args)
    if (failed(v.value)) throw Failed{};
  return aten::call_user(b, *operators, user_name(node.target), args, node.outputs.size());
}

// Tensors that failed have the types that the file declares.
void Importer::note_unknown(const Graph& graph, const Node& node, const Scope& scope) {
  constexpr size_t kMostCalls = 100;
  if (user_name(node.target).empty() || unknown.size() >= kMostCalls) return;
  const auto declared = [&](const std::string& name) -> std::optional<graph::Type> {
    const auto meta = graph.tensors.find(name);
    const auto type = meta == graph.tensors.end() ? std::nullopt : element_type(meta->second.scalar_type);
    if (!type) return std::nullopt;
    graph::Type out{type->dtype, {}};
    for (const Size& size : meta->second.sizes) {
      const auto e = expression(size);
      if (!e) return std::nullopt;
      out.shape.push_back(*e);
    }
    return out;
  };
  graph::UnknownCall call = aten::unknown_call(b, user_name(node.target), arguments_of(node, scope));
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (call.arguments[i].tensor && !call.arguments[i].type)
      call.arguments[i].type = declared(node.inputs[i].value.text);
  for (const Argument& output : node.outputs) call.results.push_back(declared(output.text));
  unknown.push_back(std::move(call));
}

std::vector<Value> Importer::import_node(const Graph& graph, const Node& node, const Scope& scope) {
  if (is_higher_order(node.target)) return import_higher_order(*this, node, scope);
  if (is_size_op(node.target)) {
    std::vector<Value> args;
    for (const NamedArgument& input : node.inputs) args.push_back(value_of(input.value, scope));
    for (const Value& v : args)
      if (failed(v)) throw Failed{};
    return {size_op(b, node.target, args)};
  }
  if (is_user(node.target)) return call_user(node, scope);
  const aten::Schema* schema = schema_of(node.target);
  if (!schema)
    fail(ErrorKind::kUnsupported, "unsupported-op",
         cat("operator ", short_target(node.target), " is not supported"));
  std::vector<aten::NamedValue> args;
  for (const NamedArgument& input : node.inputs) args.push_back({input.name, value_of(input.value, scope)});
  for (const aten::NamedValue& v : args)
    if (failed(v.value)) throw Failed{};
  const bool writes = std::any_of(schema->arguments.begin(), schema->arguments.end(),
                                  [](const auto& a) { return a.aliased; });
  if (autocast && !writes) cast_operands(graph, node, args);
  return aten::call(b, *schema, std::move(args));
}

// Some devices return means, deviations and log-sum-exps in f32, others in the input's dtype. They get the
// dtype that the file states.
void Importer::round_statistics(const Graph& graph, const Argument& output, Value& value) {
  const auto meta = graph.tensors.find(output.text);
  if (output.kind != Kind::kTensor || !value.is_tensor() || meta == graph.tensors.end()) return;
  const auto type = element_type(meta->second.scalar_type);
  const ops::Term t = aten::read(b, value.tensor);
  if (type && !type->complex && !value.tensor.complex && type->dtype != t.dtype() && is_float(type->dtype) &&
      t.dtype() == DType::kF32)
    value = Value(ops::cast(t, type->dtype, false));
}

namespace {

bool agrees(const TensorMeta& meta, const graph::Shape& shape) {
  return std::equal(meta.sizes.begin(), meta.sizes.end(), shape.begin(), shape.end(),
                    [](const Size& size, const sym::Expr& own) {
                      return !size.value || !own.is_const() || own.value() == *size.value;
                    });
}

}  // namespace

// PyTorch 2.11 traces an LSTM on a CPU by oneDNN's layer, and states [layers, 1, batch, hidden] for the last
// hidden and cell states. The operator itself gives [layers, batch, hidden]. The shapes of what reads such a
// state follow from the wrong ones.
bool Importer::may_be_misstated(const Node& node, const TensorMeta& meta, const graph::Shape& shape) const {
  if (node.target == "torch.ops.aten.lstm.input" && meta.sizes.size() == shape.size() + 1)
    return meta.sizes[1].value == 1;
  bool reads = false;
  for (const NamedArgument& input : node.inputs)
    for_names(input.value, [&](const std::string& name) { reads = reads || misstated_.contains(name); });
  return reads;
}

// Compares a result with what the file says of it: a difference is a defect of the import, and refused.
void Importer::check_tensor(const TensorMeta& meta, Value& value) {
  check_dtype(meta, value);
  const graph::Shape shape = aten::shape_of(b, value.tensor);
  if (!agrees(meta, shape))
    fail(ErrorKind::kUnsupported, "import-mismatch",
         cat("the result has shape ",
             graph::to_string(graph::Type{aten::read(b, value.tensor).dtype(), shape}),
             ", which is not PyTorch's"),
         "this is a gap in the import of the operator: please report it");
  take_layout(meta, value.tensor);
}

void Importer::check_dtype(const TensorMeta& meta, const Value& value) {
  const auto type = element_type(meta.scalar_type);
  const DType dtype = aten::read(b, value.tensor).dtype();
  if (!type || type->dtype != dtype || type->complex != value.tensor.complex)
    fail(ErrorKind::kUnsupported, "import-mismatch",
         cat("the result is ", stridec::name(dtype), ", but PyTorch's is ",
             scalar_type_name(meta.scalar_type)),
         "this is a gap in the import of the operator: please report it");
}

// Sizes that the data decides get their meaning, and the tensor its strides.
void Importer::take_layout(const TensorMeta& meta, aten::Tensor& tensor) {
  const graph::Shape shape = aten::shape_of(b, tensor);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (meta.sizes[d].value) continue;
    const auto unknown =
        parse_expression(meta.sizes[d].text, [&](const std::string& s) -> std::optional<sym::Expr> {
          if (!symbols.contains(s)) return sym::var(s);
          return std::nullopt;
        });
    if (unknown && unknown->is_var()) symbols.emplace(unknown->name(), shape[d]);
  }
  if (meta.strides.size() != shape.size()) return;
  std::vector<sym::Expr> strides;
  for (const Size& stride : meta.strides)
    if (const auto e = expression(stride)) strides.push_back(*e);
  if (strides.size() != shape.size()) return;
  tensor.strides = strides;
  if (!tensor.view && !tensor.storage->strides) tensor.storage->strides = strides;
}

void Importer::define(const Graph& graph, const Argument& output, Value value, Scope& scope,
                      const Node& node) {
  if (output.kind == Kind::kNone) return;
  if (output.kind == Kind::kList) {
    if (value.kind != Value::Kind::kList || value.items.size() != output.items.size())
      fail(ErrorKind::kUnsupported, "import-mismatch",
           "the operator gives another number of tensors than PyTorch's");
    for (size_t i = 0; i < output.items.size(); ++i)
      define(graph, output.items[i], value.items[i], scope, node);
    return;
  }
  const bool token = value.kind == Value::Kind::kOther;
  if (output.kind == Kind::kTensor && !token) {
    if (!value.is_tensor()) fail(ErrorKind::kUnsupported, "import-mismatch", "the operator gives no tensor");
    if (const auto meta = graph.tensors.find(output.text); meta != graph.tensors.end()) {
      const graph::Shape shape = aten::shape_of(b, value.tensor);
      if (agrees(meta->second, shape) || !may_be_misstated(node, meta->second, shape)) {
        check_tensor(meta->second, value);
      } else {
        check_dtype(meta->second, value);
        misstated_.insert(output.text);
      }
    }
    const ops::Term term = aten::read(b, value.tensor);
    if (!value.tensor.view && b.graph()[term.id()].name.empty()) b.set_name(term.id(), output.text);
  } else if (output.kind == Kind::kSymInt && value.kind == Value::Kind::kInt) {
    if (const auto size = graph.sizes.find(output.text); size != graph.sizes.end() && !size->second.value) {
      const auto unknown =
          parse_expression(size->second.text, [&](const std::string& s) -> std::optional<sym::Expr> {
            if (!symbols.contains(s)) return sym::var(s);
            return std::nullopt;
          });
      if (unknown && unknown->is_var()) symbols.emplace(unknown->name(), value.integer);
    }
  }
  scope[output.text] = std::move(value);
}

namespace {

void add_tensors(const Value& value, std::vector<graph::ValueId>& tensors) {
  if (value.is_tensor() && value.tensor.storage) tensors.push_back(value.tensor.storage->base);
  for (const Value& item : value.items) add_tensors(item, tensors);
}

}  // namespace

void Importer::note_outcome(size_t listed, const Node& node, const std::vector<Value>& results,
                            const Scope& scope) {
  std::vector<graph::ValueId> from, to;
  for (const NamedArgument& input : node.inputs) {
    const auto found = scope.find(input.value.text);
    if (found != scope.end()) add_tensors(found->second, from);
  }
  for (const Value& result : results) add_tensors(result, to);
  set_outcome(nodes[listed], b.graph(), from, to);
  // Numbers are expressions, and assertions are guards.
  if (to.empty()) nodes[listed].outcome = graph::Outcome::kSize;
}

void Importer::run(const Graph& graph, Scope& scope) {
  const std::unordered_set<std::string> read = names_read(graph);
  for (const Node& node : graph.nodes) {
    const int index = position_++;
    const std::string origin = cat("node ", index, " '", node.name, "' (", short_target(node.target), ")");
    const size_t listed = nodes.size();
    nodes.push_back({.text = origin, .needed = !dead.contains(&node)});
    if (dead.contains(&node)) continue;
    const auto give_up = [&] {
      const std::function<void(const Argument&)> mark = [&](const Argument& a) {
        if (!a.text.empty()) scope[a.text] = Value::failed();
        for (const Argument& item : a.items) mark(item);
      };
      for (const Argument& output : node.outputs) mark(output);
    };
    if (unsupported.contains(node.target)) {
      b.set_origin(origin);
      note_unknown(graph, node, scope);
      give_up();
      continue;
    }
    b.set_origin(origin);
    try {
      std::vector<Value> results = import_node(graph, node, scope);
      const auto unread = [&](const Argument& a) {
        return a.kind == Kind::kNone || (a.kind == Kind::kTensor && !read.contains(a.text));
      };
      results.resize(std::max(results.size(), node.outputs.size()));
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (results[i].is_none() && !unread(node.outputs[i]))
          fail(ErrorKind::kUnsupported, "unsupported-op",
               cat("operator ", short_target(node.target), ": result ", i + 1, " of ", node.outputs.size(),
                   " is not supported"));
      note_outcome(listed, node, results, scope);
      // Results after the first that are for the backward pass alone have other shapes with and without one.
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if ((i > 0 || results[i].is_none()) && node.outputs[i].kind == Kind::kTensor &&
            !read.contains(node.outputs[i].text))
          continue;
        if (i > 0) round_statistics(graph, node.outputs[i], results[i]);
        define(graph, node.outputs[i], std::move(results[i]), scope, node);
      }
    } catch (const Failed&) {
      give_up();
    } catch (const std::logic_error&) {
      // A row read a dim that the tensor does not have: arguments that PyTorch does not write.
      problems.push_back(
          {.kind = ErrorKind::kUnsupported,
           .code = "unsupported-op",
           .message = cat("operator ", short_target(node.target), " does not take these arguments"),
           .where = {.file = {}, .node = b.origin(), .op = short_target(node.target), .tensor = {}},
           .notes = {},
           .help = {}});
      give_up();
    } catch (Error& error) {
      if (error.diagnostic.kind == ErrorKind::kInternal) throw;
      error.diagnostic.where.node = b.origin();
      error.diagnostic.where.op = short_target(node.target);
      if (const std::string line = source_line(node.stack_trace); !line.empty())
        error.diagnostic.notes.push_back(line);
      if (problems.size() < kMostProblems) problems.push_back(std::move(error.diagnostic));
      give_up();
    }
  }
}

std::vector<Value> Importer::run_subgraph(const Graph& graph, const std::vector<Value>& arguments) {
  if (arguments.size() != graph.inputs.size())
    malformed(cat("a subgraph takes ", graph.inputs.size(), " inputs, but is given ", arguments.size()));
  Scope scope;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (graph.inputs[i].text.empty()) continue;
    Value value = arguments[i];
    if (value.is_tensor() && graph.inputs[i].kind == Kind::kTensor)
      if (const auto meta = graph.tensors.find(graph.inputs[i].text); meta != graph.tensors.end())
        check_tensor(meta->second, value);
    if (value.kind == Value::Kind::kInt)
      if (const auto size = graph.sizes.find(graph.inputs[i].text);
          size != graph.sizes.end() && !size->second.value)
        parse_expression(size->second.text, [&](const std::string& s) -> std::optional<sym::Expr> {
          symbols.emplace(s, value.integer);
          return std::nullopt;
        });
    scope[graph.inputs[i].text] = std::move(value);
  }
  run(graph, scope);
  std::vector<Value> out;
  for (const Argument& output : graph.outputs) {
    out.push_back(value_of(output, scope));
    if (failed(out.back())) throw Failed{};
  }
  return out;
}

}  // namespace stridec::pt2

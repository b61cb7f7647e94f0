#include "compiler/frontend/onnx/user_call.h"

#include "compiler/base/diagnostic.h"
#include "compiler/base/number.h"
#include "compiler/base/text.h"

namespace stridec::onnx {
namespace {

// The numbers of a tensor in an attribute; none: they are too many, or not numbers.
std::optional<graph::AttributeValue> numbers_of(const Tensor& tensor) {
  constexpr int64_t kMost = 4096;
  const auto dtype = tensor.dtype();
  if (!dtype || tensor.count() > kMost || tensor.bytes.size == 0) return std::nullopt;
  const auto* bytes = reinterpret_cast<const uint8_t*>(tensor.bytes.data);
  const auto width = static_cast<size_t>(byte_size(*dtype));
  std::vector<double> floats;
  std::vector<int64_t> integers;
  for (size_t i = 0; i < static_cast<size_t>(tensor.count()); ++i) {
    if (is_float(*dtype))
      floats.push_back(read_float(*dtype, bytes + i * width));
    else
      integers.push_back(read_integer(*dtype, bytes + i * width));
  }
  if (is_float(*dtype)) return floats;
  return integers;
}

std::optional<graph::AttributeValue> value_of(const Attribute& attribute) {
  switch (attribute.kind) {
    case AttributeKind::kInt: return attribute.ints.at(0);
    case AttributeKind::kFloat: return static_cast<double>(attribute.floats.at(0));
    case AttributeKind::kString: return attribute.strings.at(0);
    case AttributeKind::kInts: return attribute.ints;
    case AttributeKind::kFloats: return std::vector<double>(attribute.floats.begin(), attribute.floats.end());
    case AttributeKind::kTensor: return numbers_of(attribute.tensors.at(0));
    default: return std::nullopt;
  }
}

}  // namespace

std::string user_name(const Node& node) {
  return cat(node.domain.empty() ? "ai.onnx" : node.domain, "::", node.op_type);
}

Outputs call_user(const graph::UserOperators& operators, Context& context) {
  const Node& node = context.node;
  graph::OperatorCall call{.name = user_name(node), .arguments = {}, .outputs = node.outputs.size()};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    call.arguments.emplace_back();
    if (context.has(i)) call.arguments.back().tensor = context.in(i).id();
  }
  for (const Attribute& attribute : node.attributes) {
    auto value = value_of(attribute);
    if (!value)
      context.unsupported(
          cat("attribute '", attribute.name, "' is neither a number, a text nor a list of numbers"));
    call.arguments.push_back({.name = attribute.name, .tensor = {}, .value = std::move(value)});
  }
  Outputs outputs;
  for (const ValueId value : operators.build(context.b, call)) outputs.emplace_back(Term(context.b, value));
  return outputs;
}

std::optional<graph::Type> declared_type(const Graph& graph, const std::string& name) {
  for (const auto* list : {&graph.value_infos, &graph.outputs})
    for (const ValueInfo& each : *list) {
      const auto dtype = dtype_from_onnx(each.type.elem_type);
      if (each.name != name || each.type.kind != Type::Kind::kTensor || !dtype || !each.type.shape) continue;
      graph::Type type{*dtype, {}};
      for (size_t d = 0; d < each.type.shape->size(); ++d) {
        const Dim& dim = (*each.type.shape)[d];
        type.shape.push_back(dim.value           ? sym::Expr(*dim.value)
                             : dim.param.empty() ? sym::var(cat(name, ".", d))
                                                 : sym::var(dim.param));
      }
      return type;
    }
  return std::nullopt;
}

graph::UnknownCall unknown_call(const Node& node, const TypeOf& type_of) {
  graph::UnknownCall call{.name = user_name(node), .node = describe(node), .arguments = {}, .results = {}};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    call.arguments.push_back({.name = {}, .type = {}, .tensor = true, .value = {}});
    if (node.has_input(i)) call.arguments.back().type = type_of(node.inputs[i]);
  }
  for (const Attribute& attribute : node.attributes)
    if (auto value = value_of(attribute))
      call.arguments.push_back(
          {.name = attribute.name, .type = {}, .tensor = false, .value = std::move(value)});
  for (const std::string& name : node.outputs) call.results.push_back(type_of(name));
  return call;
}

}  // namespace stridec::onnx

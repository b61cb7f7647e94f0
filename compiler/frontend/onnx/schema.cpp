#include "compiler/frontend/onnx/schema.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/inline_functions.h"
#include "compiler/frontend/onnx/proto.h"

namespace stridec::onnx {
namespace {

const ::onnx::OpSchema* lookup(const std::string& op_type, const std::string& domain, int version) {
  return ::onnx::OpSchemaRegistry::Schema(op_type, version, domain);
}

Parameter convert(const ::onnx::OpSchema::FormalParameter& p) {
  switch (p.GetOption()) {
    case ::onnx::OpSchema::Optional: return {p.GetName(), Parameter::Arity::kOptional};
    case ::onnx::OpSchema::Variadic: return {p.GetName(), Parameter::Arity::kVariadic};
    default: return {p.GetName(), Parameter::Arity::kSingle};
  }
}

// Keeps the first line. The checker's messages have several lines and repeat the node, which the diagnostic
// already names.
std::string first_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("[")) {
    if (const size_t end = text.find("] "); end != std::string::npos) text = text.substr(end + 2);
  }
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  if (text.size() > 1 && text[1] >= 'a' && text[1] <= 'z') text[0] = static_cast<char>(std::tolower(text[0]));
  return text;
}

}  // namespace

std::optional<Schema> find_schema(const std::string& op_type, const std::string& domain, int version) {
  const ::onnx::OpSchema* s = lookup(op_type, domain, version);
  if (!s) return std::nullopt;
  Schema out{.since_version = s->SinceVersion(),
             .deprecated = s->Deprecated(),
             .has_function = s->HasFunction() || s->HasContextDependentFunction(),
             .min_inputs = s->min_input(),
             .max_inputs = s->max_input(),
             .min_outputs = s->min_output(),
             .max_outputs = s->max_output()};
  for (const auto& p : s->inputs()) out.inputs.push_back(convert(p));
  for (const auto& p : s->outputs()) out.outputs.push_back(convert(p));
  return out;
}

bool has_schema(const std::string& op_type, const std::string& domain, int version) {
  return lookup(op_type, domain, version) != nullptr;
}

std::optional<Attribute> schema_default(const std::string& op_type, const std::string& domain, int version,
                                        const std::string& attribute) {
  const ::onnx::OpSchema* s = lookup(op_type, domain, version);
  if (!s) return std::nullopt;
  auto it = s->attributes().find(attribute);
  if (it == s->attributes().end() || it->second.default_value.name().empty()) return std::nullopt;
  return attribute_from_bytes(it->second.default_value.SerializeAsString());
}

int newest_version(const std::string& domain) {
  const auto& versions = ::onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  auto it = versions.find(domain);
  return it == versions.end() ? 0 : it->second.second;
}

std::optional<Diagnostic> check_node(const Node& node) {
  const ::onnx::OpSchema* s = lookup(node.op_type, node.domain, node.version);
  if (!s) return std::nullopt;  // the importer reports unknown operators
  ::onnx::NodeProto proto;
  node_to_proto(node, proto, false);
  ::onnx::checker::CheckerContext context;
  context.set_ir_version(static_cast<int>(::onnx::IR_VERSION));
  context.set_opset_imports({{node.domain, node.version}});
  try {
    ::onnx::checker::check_node(proto, context, ::onnx::checker::LexicalScopeContext());
    return std::nullopt;
  } catch (const std::exception& e) {
    return Diagnostic{.kind = ErrorKind::kMalformed,
                      .code = "malformed-node",
                      .message = first_line(e.what()),
                      .where = {.node = describe(node), .op = describe_op(node)}};
  }
}

std::optional<std::vector<Node>> expand_function(const Node& node, const std::vector<Type>& input_types,
                                                 const std::string& prefix,
                                                 const std::map<std::string, int>& model_opsets) {
  const ::onnx::OpSchema* s = lookup(node.op_type, node.domain, node.version);
  if (!s) return std::nullopt;
  ::onnx::FunctionProto body;
  try {
    if (const ::onnx::FunctionProto* fixed = s->GetFunction(node.version)) {
      body = *fixed;
    } else if (s->HasContextDependentFunction()) {
      ::onnx::NodeProto proto;
      node_to_proto(node, proto, true);
      std::vector<::onnx::TypeProto> types(input_types.size());
      for (size_t i = 0; i < types.size(); ++i) type_to_proto(input_types[i], types[i]);
      const ::onnx::FunctionBodyBuildContextImpl context(proto, types);
      if (!s->BuildContextDependentFunction(context, body, node.version)) return std::nullopt;
    } else {
      return std::nullopt;
    }
  } catch (const std::exception&) {
    return std::nullopt;  // the function builder needs something that this node does not have
  }
  Function function = function_from_proto(body);
  for (const auto& [name, attribute] : s->attributes())
    if (!attribute.default_value.name().empty())
      function.attribute_defaults.push_back(
          attribute_from_bytes(attribute.default_value.SerializeAsString()));
  std::vector<Node> out = instantiate(function, node, prefix);
  // Function bodies import the opset they were written for, and may call other function operators.
  const auto set_version = [&](auto&& self, std::vector<Node>& nodes) -> void {
    for (Node& n : nodes) {
      if (n.version == 0) {
        const auto own = function.opsets.find(n.domain);
        const auto model = model_opsets.find(n.domain);
        n.version = own != function.opsets.end()  ? own->second
                    : model != model_opsets.end() ? model->second
                                                  : node.version;
      }
      for (Attribute& a : n.attributes)
        for (Graph& g : a.graphs) self(self, g.nodes);
    }
  };
  set_version(set_version, out);
  return out;
}

std::vector<TypeParameter> type_parameters(const std::string& op_type, const std::string& domain,
                                           int version) {
  const ::onnx::OpSchema* s = lookup(op_type, domain, version);
  std::vector<TypeParameter> out;
  if (!s) return out;
  for (const auto& parameter : s->typeConstraintParams()) {
    std::vector<int> types;
    for (const std::string& text :
         parameter.allowed_type_strs) {  // "tensor(float16)", "seq(tensor(float16))"
      constexpr std::string_view kTensor = "tensor(";
      if (!text.starts_with(kTensor)) continue;
      std::string type = text.substr(kTensor.size(), text.size() - kTensor.size() - 1);
      std::transform(type.begin(), type.end(), type.begin(),
                     [](unsigned char ch) { return static_cast<char>(std::toupper(ch)); });
      ::onnx::TensorProto_DataType value;
      if (::onnx::TensorProto_DataType_Parse(type, &value)) types.push_back(value);
    }
    std::sort(types.begin(), types.end());
    if (!types.empty()) out.push_back({parameter.type_param_str, std::move(types)});
  }
  return out;
}

std::vector<OperatorHistory> operators_of(const std::string& domain) {
  std::map<std::string, std::vector<int>> found;
  for (const auto& s : ::onnx::OpSchemaRegistry::get_all_schemas_with_history())
    if (s.domain() == domain && !s.Deprecated()) found[s.Name()].push_back(s.SinceVersion());
  std::vector<OperatorHistory> out;
  for (auto& [op_type, since] : found) {
    std::sort(since.begin(), since.end());
    out.push_back({op_type, std::move(since)});
  }
  return out;
}

}  // namespace stridec::onnx

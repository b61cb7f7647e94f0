// ONNX's own knowledge about operators: schemas of every opset, its checker, bodies of function operators.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

struct Parameter {
  std::string name;
  enum class Arity : uint8_t { kSingle, kOptional, kVariadic } arity = Arity::kSingle;
};

// One operator at one opset version.
struct Schema {
  int since_version = 0;
  bool deprecated = false;
  bool has_function = false;  // whether expand_function can succeed
  std::vector<Parameter> inputs;
  std::vector<Parameter> outputs;
  int min_inputs = 0, max_inputs = 0, min_outputs = 0, max_outputs = 0;
};

// None if the domain's version does not have the operator.
std::optional<Schema> find_schema(const std::string& op_type, const std::string& domain, int version);

bool has_schema(const std::string& op_type, const std::string& domain, int version);

// The attribute's default in that version; none if it has no default.
std::optional<Attribute> schema_default(const std::string& op_type, const std::string& domain, int version,
                                        const std::string& attribute);

// The newest version of a domain in the linked ONNX library; 0 for domains that are not ONNX's.
int newest_version(const std::string& domain);

// Runs ONNX's checker on one node: operator, number of inputs and outputs, attributes and their types. Does
// not enter subgraphs. Accepts nodes of domains that are not ONNX's. The caller sets `where.file`.
std::optional<Diagnostic> check_node(const Node& node);

// The body of an operator that ONNX defines as a function, with the node's own input and output names;
// `prefix` makes inner names unique. None if the schema has no body, or if the body depends on types that
// `input_types` does not have (kNone: unknown).
std::optional<std::vector<Node>> expand_function(const Node& node, const std::vector<Type>& input_types,
                                                 const std::string& prefix,
                                                 const std::map<std::string, int>& model_opsets = {});

// Element types (TensorProto.DataType, sorted) allowed for each type parameter: {"T", {1, 10, 11}}.
struct TypeParameter {
  std::string name;
  std::vector<int> elem_types;
};
std::vector<TypeParameter> type_parameters(const std::string& op_type, const std::string& domain,
                                           int version);

// All operators of a domain, sorted, with the versions that changed them, oldest first. Versions in which an
// operator is deprecated are omitted.
struct OperatorHistory {
  std::string op_type;
  std::vector<int> since;
};
std::vector<OperatorHistory> operators_of(const std::string& domain);

}  // namespace stridec::onnx

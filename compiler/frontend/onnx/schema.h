// What ONNX itself knows about operators: schemas of every opset, its checker, the bodies of its function
// operators.
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
  bool has_function = false;  // expand_function may succeed
  std::vector<Parameter> inputs;
  std::vector<Parameter> outputs;
  int min_inputs = 0, max_inputs = 0, min_outputs = 0, max_outputs = 0;
};

// None: the domain's version does not have the operator.
std::optional<Schema> find_schema(const std::string& op_type, const std::string& domain, int version);

bool has_schema(const std::string& op_type, const std::string& domain, int version);

// The attribute's default at that version; none if it has none.
std::optional<Attribute> schema_default(const std::string& op_type, const std::string& domain, int version,
                                        const std::string& attribute);

// Newest version of a domain that the linked ONNX library knows; 0 for domains that are not ONNX's.
int newest_version(const std::string& domain);

// ONNX's checker on one node: operator, number of inputs and outputs, attributes and their types. Subgraphs
// are not entered. Nodes of domains that are not ONNX's pass. `where.file` is left to the caller.
std::optional<Diagnostic> check_node(const Node& node);

// The nodes that an operator defined by a function body stands for, between the names of the node's own
// inputs and outputs; inner names are made unique with `prefix`. None if the schema has no body, or if the
// body needs types that `input_types` (kNone where unknown) does not give.
std::optional<std::vector<Node>> expand_function(const Node& node, const std::vector<Type>& input_types,
                                                 const std::string& prefix,
                                                 const std::map<std::string, int>& model_opsets = {});

// The element types (TensorProto.DataType, sorted) that tensors of each type parameter may have: {"T", {1, 10, 11}}.
struct TypeParameter {
  std::string name;
  std::vector<int> elem_types;
};
std::vector<TypeParameter> type_parameters(const std::string& op_type, const std::string& domain,
                                           int version);

// Every operator of a domain, sorted, with the versions in which it changed, oldest first; without those in which it is
// deprecated.
struct OperatorHistory {
  std::string op_type;
  std::vector<int> since;
};
std::vector<OperatorHistory> operators_of(const std::string& domain);

}  // namespace stridec::onnx

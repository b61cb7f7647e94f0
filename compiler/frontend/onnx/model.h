// An ONNX model as plain data: the contents of the file, checked and flattened, without protobuf types.
//
// read_model (read.h) guarantees: every graph is topologically sorted and single-assignment; every name read
// is defined; model-local functions are inlined; each node has the version of its own domain; tensors have as
// many bytes as their dims require. Shapes are not checked, and operators may be unknown.
//
// Weights are views. `Tensor::bytes` points into the mapped model file or external file if that stores plain
// little-endian data, and into owned memory only if the file packs or splits values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"

namespace stridec::onnx {

// Read-only bytes, kept alive by `owner`. Not necessarily aligned: files align nothing.
struct Bytes {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t size = 0;
};

struct Tensor {
  std::string name;
  int elem_type = 0;  // TensorProto.DataType
  std::vector<int64_t> dims;
  Bytes bytes;  // row-major, little-endian; types narrower than a byte take one byte per element
  std::vector<std::string> strings;  // instead of bytes when elem_type is kString

  std::optional<DType> dtype() const { return dtype_from_onnx(elem_type); }  // none: string, complex
  int64_t count() const;
};

// Values of TensorProto.DataType without a DType.
enum : int { kElemUndefined = 0, kElemString = 8, kElemComplex64 = 14, kElemComplex128 = 15 };
std::string elem_type_name(int elem_type);  // "f32", "string", "complex64", "type 99"

// Known (`value`), named (`param`) or neither.
struct Dim {
  std::optional<int64_t> value;
  std::string param;
};

struct Type {
  enum class Kind : uint8_t { kNone, kTensor, kSparseTensor, kSequence, kMap, kOptional, kOpaque };
  Kind kind = Kind::kNone;
  int elem_type = 0;                      // tensors; the key of a map
  std::optional<std::vector<Dim>> shape;  // tensors; none: rank unknown
  std::vector<Type> element;              // one, for sequence and optional, and for the value of a map
};
std::string type_name(const Type& type);  // "f32[batch,3]", "seq(i64)", "f32[...]" for unknown rank

struct ValueInfo {
  std::string name;
  Type type;
};

struct Graph;

enum class AttributeKind : uint8_t {  // AttributeProto.AttributeType
  kUndefined = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kGraphs = 10,
  kSparseTensor = 11,
  kSparseTensors = 12,
  kType = 13,
  kTypes = 14,
};

// A single value is a list of length one: `ints[0]` for kInt. Sparse tensors are densified.
struct Attribute {
  std::string name;
  AttributeKind kind = AttributeKind::kUndefined;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
  std::vector<Tensor> tensors;
  std::vector<Graph> graphs;
  std::vector<Type> types;
  // In a function body: the caller's attribute that provides the value. Empty elsewhere.
  std::string reference;
};

struct Node {
  std::string name;
  std::string op_type;
  std::string domain;  // "" is ai.onnx
  std::string overload;
  int version = 0;  // of the domain, as imported by the model or by the function the node comes from
  std::vector<std::string> inputs;   // "" for an omitted optional input
  std::vector<std::string> outputs;  // likewise
  std::vector<Attribute> attributes;
  std::map<std::string, std::string> metadata;  // metadata_props; doc_string under "doc_string"
  int index = -1;  // position in the file's main graph; for inlined nodes, that of the call
  // "412", "412.then_branch.0" in a subgraph, "412.3" for node 3 of the function that node 412 calls; "": the
  // node was not read from a file.
  std::string place;

  const Attribute* find(std::string_view attribute) const;
  bool has_input(size_t i) const { return i < inputs.size() && !inputs[i].empty(); }
  bool has_output(size_t i) const { return i < outputs.size() && !outputs[i].empty(); }
};
std::string describe(const Node& node);     // "node 412 'head/nms'"
std::string describe_op(const Node& node);  // "NonMaxSuppression (domain ai.onnx, version 11)"

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  // Without those that only list an initializer, if the model's initializers cannot be overridden.
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::vector<ValueInfo> value_infos;
  std::map<std::string, std::string> metadata;
};

// A model-local function, before it is inlined.
struct Function {
  std::string name;
  std::string domain;
  std::string overload;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> attributes;        // names that the caller may set
  std::vector<Attribute> attribute_defaults;  // those with a default
  std::map<std::string, int> opsets;
  std::vector<Node> nodes;
  std::vector<ValueInfo> value_infos;
};

struct Model {
  std::string file;                         // as the user wrote it
  std::vector<std::string> external_files;  // with its data
  int64_t ir_version = 0;
  std::string producer;  // "pytorch 2.9"
  std::map<std::string, int> opsets;
  std::map<std::string, std::string> metadata;
  Graph graph;
  std::vector<Function> functions;  // empty once inlined
  bool has_training_info = false;
  uint64_t node_count = 0;  // nodes in the file, subgraphs included

  int opset() const;  // of ai.onnx; 0 when not imported
};

}  // namespace stridec::onnx

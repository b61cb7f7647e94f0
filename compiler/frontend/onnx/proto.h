// Converts between ONNX's protobuf messages and model.h. Only proto.cpp, schema.cpp and weight_editor.cpp
// include the headers of protobuf and ONNX.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/external_data.h"
#include "compiler/frontend/onnx/model.h"

namespace onnx {
class FunctionProto;
class NodeProto;
class TensorProto;
class TypeProto;
}  // namespace onnx

namespace stridec::onnx {

// Sources of tensor data that is not in the message.
struct TensorSource {
  std::shared_ptr<const MappedFile> file;  // the file that `segment` (protobuf_wire.h) refers to
  DataFolders folders = {};                // of external data
  bool external_data = true;               // false: external data is an error (a tensor outside a model file)
  bool zero_when_missing = false;          // a tensor without data is zero; false: it is an error
  std::map<std::string, std::shared_ptr<const MappedFile>> external;  // by location; each file is mapped once
};

// `structure` is the result of split_weights for source.file. Functions are not yet inlined, node versions
// not yet set. Throws Error with file, node and tensor filled in if known.
Model parse_model(const std::string& structure, TensorSource& source);

// The data of a tensor as it is stored, wherever that is: types narrower than a byte are packed.
Bytes stored_data(const ::onnx::TensorProto& proto, TensorSource& source);

// Trusts the function bodies of ONNX's own schemas, and copies their small tensors.
Function function_from_proto(const ::onnx::FunctionProto& function);
Attribute attribute_from_bytes(const std::string& attribute_proto);  // a serialized AttributeProto
// Without `data`, tensors and subgraphs are left empty, which suffices to check a node's form.
void node_to_proto(const Node& node, ::onnx::NodeProto& out, bool data);
void type_to_proto(const Type& type, ::onnx::TypeProto& out);

// Parses a serialized TensorProto (the backend suite's input_0.pb).
Tensor parse_tensor(std::span<const std::byte> bytes);

// The value of an input or output, parsed from a serialized TensorProto, SequenceProto, OptionalProto or
// MapProto, depending on `type`.
struct Value {
  bool present = true;          // for an optional: whether it holds a value
  std::vector<Tensor> tensors;  // one; the items of a sequence; or a map's keys and its values
};
Value parse_value(std::span<const std::byte> bytes, const Type& type);

}  // namespace stridec::onnx

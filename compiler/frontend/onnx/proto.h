// Between ONNX's protobuf messages and model.h. Protobuf's and ONNX's headers are included by proto.cpp and
// schema.cpp, and nowhere else.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/mapped_file.h"
#include "compiler/frontend/onnx/model.h"

namespace onnx {
class FunctionProto;
class NodeProto;
class TypeProto;
}  // namespace onnx

namespace stridec::onnx {

// Where tensors find bytes that are not in the message.
struct TensorSource {
  std::shared_ptr<const MappedFile> file;  // what `segment` (protobuf_wire.h) refers to
  std::filesystem::path folder;            // external data lies here or below
  bool external_data = true;               // false: external data is an error (a tensor outside a model file)
  bool zero_when_missing = false;          // a tensor without data is zero instead of an error
  std::map<std::string, std::shared_ptr<const MappedFile>> external;  // by location, mapped once
};

// `structure` is what split_weights returned for source.file. Functions are not inlined yet, node versions
// not yet set. Throws Error with file, node and tensor filled in as far as they are known.
Model parse_model(const std::string& structure, TensorSource& source);

// Function bodies of ONNX's own schemas are trusted; their small tensors are copied.
Function function_from_proto(const ::onnx::FunctionProto& function);
Attribute attribute_from_bytes(const std::string& attribute_proto);  // a serialized AttributeProto
// Without `data`, tensors and subgraphs become empty: enough to check a node's form.
void node_to_proto(const Node& node, ::onnx::NodeProto& out, bool data);
void type_to_proto(const Type& type, ::onnx::TypeProto& out);

// A serialized TensorProto by itself (the backend suite's input_0.pb).
Tensor parse_tensor(std::span<const std::byte> bytes);

// The value of an input or output by itself: a serialized TensorProto, SequenceProto, OptionalProto
// or MapProto, as `type` says.
struct Value {
  bool present = true;          // of an optional
  std::vector<Tensor> tensors;  // one, those of a sequence, or a map's keys and its values
};
Value parse_value(std::span<const std::byte> bytes, const Type& type);

}  // namespace stridec::onnx

#include "compiler/frontend/onnx/model.h"

#include "compiler/base/text.h"

namespace stridec::onnx {

int64_t Tensor::count() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

std::string elem_type_name(int elem_type) {
  if (auto type = dtype_from_onnx(elem_type)) return std::string(stridec::name(*type));
  switch (elem_type) {
    case kElemUndefined: return "undefined";
    case kElemString: return "string";
    case kElemComplex64: return "complex64";
    case kElemComplex128: return "complex128";
    default: return cat("type ", elem_type);
  }
}

std::string type_name(const Type& type) {
  switch (type.kind) {
    case Type::Kind::kNone: return "unknown";
    case Type::Kind::kSequence: return "seq(" + type_name(type.element.at(0)) + ")";
    case Type::Kind::kOptional: return "optional(" + type_name(type.element.at(0)) + ")";
    case Type::Kind::kMap:
      return "map(" + elem_type_name(type.elem_type) + ", " + type_name(type.element.at(0)) + ")";
    case Type::Kind::kOpaque: return "opaque";
    case Type::Kind::kTensor:
    case Type::Kind::kSparseTensor: break;
  }
  std::string out = type.kind == Type::Kind::kSparseTensor ? "sparse " : "";
  out += elem_type_name(type.elem_type);
  if (!type.shape) return out + "[...]";
  return out + "[" +
         join(*type.shape, ",",
              [](const Dim& d) {
                if (d.value) return std::to_string(*d.value);
                return d.param.empty() ? std::string("?") : d.param;
              }) +
         "]";
}

const Attribute* Node::find(std::string_view attribute) const {
  for (const Attribute& a : attributes)
    if (a.name == attribute) return &a;
  return nullptr;
}

std::string describe(const Node& node) {
  std::string out = !node.place.empty() ? cat("node ", node.place)
                    : node.index >= 0   ? cat("node ", node.index)
                                        : "node";
  return node.name.empty() ? out : out + " '" + node.name + "'";
}

std::string describe_op(const Node& node) {
  return cat(node.op_type, " (domain ", node.domain.empty() ? "ai.onnx" : node.domain, ", version ",
             node.version, ")");
}

int Model::opset() const {
  auto it = opsets.find("");
  return it == opsets.end() ? 0 : it->second;
}

}  // namespace stridec::onnx

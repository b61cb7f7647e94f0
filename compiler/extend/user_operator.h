// Operators that the user declares in a file of `--ops` (docs/operators.md has the form).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/extend/c_function.h"
#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/graph/user_operators.h"

namespace stridec::extend {

// A dim of a declared tensor: `...name`, or a term over dims and attributes.
struct DeclaredDim {
  bool rest = false;
  std::string rest_name;  // may be ""
  Term size;
};

struct DeclaredTensor {
  std::string name;
  std::string type;  // of `types`, a class of types or a type
  bool has_shape = false;
  std::vector<DeclaredDim> shape;
  std::optional<double> otherwise;  // of an input that may be left out: the number in its place
};

struct DeclaredAttribute {
  enum class Kind { kInt, kFloat, kString, kType, kInts, kFloats };
  std::string name;
  Kind kind = Kind::kFloat;
  std::optional<Attr> otherwise;
};

struct TypeVariable {
  std::string name;
  std::vector<DType> dtypes;
};

// What an operator computes, in one of the forms.
struct OperatorBody {
  std::vector<Definition> formula;  // each name is defined before it is used
  std::optional<CFunction> point;   // of one element of each output
  // Of a nest, which is a point with arrays: parameters that are indices of the outputs.
  bool nest = false;
  std::vector<std::string> indices;
};

// Another body that the results are compared with, on drawn inputs, before the operator is used.
struct OperatorReference {
  OperatorBody body;
  double relative = 1e-5, absolute = 1e-5;
};

struct UserOperator {
  std::string name;     // "acme::Rotary"
  std::string pointer;  // its place in the file: "/operators/0"
  std::vector<TypeVariable> types;
  std::vector<DeclaredTensor> inputs, outputs;
  std::vector<DeclaredAttribute> attributes;
  std::vector<Requirement> require;
  OperatorBody body;
  std::optional<OperatorReference> reference;
};

struct OperatorFile {
  std::string path, name;
  int version = 1;
  std::string sha256;
  std::vector<UserOperator> operators;
};

// Throws Error kMalformed, code "bad-operator", with the file and a JSON pointer.
OperatorFile parse_operators(const std::string& text, const std::string& path);
OperatorFile read_operators(const std::string& path);

// The operators of all files. Throws Error kUsage if two have one name.
class Operators : public graph::UserOperators {
 public:
  explicit Operators(const std::vector<std::shared_ptr<const OperatorFile>>& files);
  bool has(std::string_view name) const override { return find(name) != nullptr; }
  std::vector<graph::ValueId> build(graph::Builder& builder, const graph::OperatorCall& call) const override;

 private:
  const UserOperator* find(std::string_view name) const;
  std::vector<const UserOperator*> all_;
};

// Builds a call, by its body or by another.
std::vector<graph::ValueId> build_operator(graph::Builder& builder, const UserOperator& op,
                                           const OperatorBody& body, const graph::OperatorCall& call);

// Compares bodies with their references on the interpreter. Throws Error (kDoesNotFit, "wrong-operator") with
// the inputs for which they differ.
void check_references(const OperatorFile& file);

// A draft of a file that declares the operators of these calls: inputs, attributes and shapes as they were
// seen. JSON, ends with a newline.
std::string draft_operators(const std::vector<graph::UnknownCall>& calls);

}  // namespace stridec::extend

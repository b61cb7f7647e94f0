// Operators that the user declares in a file of `--ops` (docs/operators.md has the form).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/extend/c_function.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/graph/user_operators.h"
#include "compiler/loop/user_kernel.h"

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

// A kernel as the file declares it. The parameters of its texts are checked and have names of the
// declaration.
struct KernelBody {
  struct Text {
    std::string source, place, function;
    bool returns = false;
    std::vector<std::string> parameters;
  };
  std::optional<Text> c, cuda;
  std::map<std::string, loop::UserKernel::Strides, std::less<>> strides;  // dense where none is given
  std::map<std::string, size_t, std::less<>> in_place;  // output -> the input whose memory it takes
  std::optional<Term> parallel, scratch;                // points of the parallel domain; bytes
  std::optional<Term> flops, bytes;  // of a call; bytes: the sizes of all tensors where none are given
  // Of CUDA: blocks per dim, threads of a block, bytes of dynamic shared memory.
  std::vector<Term> grid;
  int threads = 256;
  std::optional<Term> shared;
  bool callback = false;  // the application computes it; there is no text
};

// How a kernel runs to be checked.
struct KernelTrial {
  bool strided = false;   // tensors have gaps and run backwards where the declaration takes that
  bool at_start = false;  // the guard page is before each tensor's first byte; else after its last
  uint8_t fill = 0xa5;    // what outputs hold before
  int64_t parts = 1;      // calls, of a parallel domain
  int64_t part = -1;      // the only one of these calls that runs; -1: all of them
};

// What this layer cannot do with a kernel, since compilers are above it.
struct KernelHost {
  std::function<void(const loop::UserKernel& kernel)> check;  // throws Error if a text does not compile
  loop::UserKernel::Run run;                                  // by the text in C
  std::function<void(const loop::UserKernel& kernel, std::span<const loop::RoutineBuffer> reads,
                     std::span<const loop::RoutineBuffer> writes, const std::vector<int64_t>& arguments,
                     const KernelTrial& trial)>
      trial;
};

// What an operator computes, in one of the forms.
struct OperatorBody {
  std::vector<Definition> formula;  // each name is defined before it is used
  std::optional<CFunction> point;   // of one element of each output
  // Of a nest, which is a point with arrays: parameters that are indices of the outputs.
  bool nest = false;
  std::vector<std::string> indices;
  std::optional<KernelBody> kernel;
};

// Another body that the results are compared with, on drawn inputs, before the operator is used.
struct OperatorReference {
  OperatorBody body;
  double relative = 1e-5, absolute = 1e-5;
  std::optional<int64_t> ulps;                   // units in the last place, in place of both
  Check inputs = {.kind = Check::Kind::kClose};  // what they are assumed to be: finite, or in a range
};

struct UserOperator;
// Of an operator whose last input or output stands for any number of tensors.
struct Variadic {
  bool input = false, output = false;
  size_t inputs = 0, outputs = 0;  // the number of the others
  // The operator with this many tensors in place of the variadic input and output.
  std::function<UserOperator(size_t inputs, size_t outputs)> instance;
};

struct UserOperator {
  std::string name;     // "acme::Rotary"
  std::string pointer;  // its place in the file: "/operators/0"
  std::string hash;     // of what the file says about it
  std::vector<TypeVariable> types;
  std::vector<DeclaredTensor> inputs, outputs;
  std::vector<DeclaredAttribute> attributes;
  std::vector<Requirement> require;
  OperatorBody body;
  std::optional<OperatorReference> reference;
  // Definitions of grad_x for inputs x, over inputs, outputs y and their gradients grad_y; empty: that of the
  // body's operations. An input without a definition has no gradient.
  std::vector<Definition> gradient;
  // If set, the members above are those of two tensors in each variadic place.
  std::shared_ptr<const Variadic> variadic = {};
};

// The operator for a call with so many tensors; itself if it is not variadic. Throws Error kDoesNotFit if
// there are too few.
UserOperator instance_of(const UserOperator& op, size_t inputs, size_t outputs);

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
  explicit Operators(const std::vector<std::shared_ptr<const OperatorFile>>& files, KernelHost host = {});
  bool has(std::string_view name) const override { return find(name) != nullptr; }
  std::vector<graph::ValueId> build(graph::Builder& builder, const graph::OperatorCall& call) const override;
  // A call in a replacement: tensors in the order of the declaration, attributes by name.
  std::vector<graph::ValueId> build(graph::Builder& builder, const std::string& name,
                                    const std::vector<graph::ValueId>& inputs, const Arguments& attributes,
                                    size_t outputs) const;
  const UserOperator* find(std::string_view name) const;  // null if there is none
  const std::string& hash() const { return hash_; }       // of all files

 private:
  std::vector<const UserOperator*> all_;
  KernelHost host_;
  std::string hash_;
};

// Whether a rule that names an operator so means one of the user: `acme.Op` is acme::Op.
bool is_own_operator(std::string_view name);
std::string declared_name(std::string_view name);

// The name of a tensor's gradient in formulas: "grad_x".
std::string gradient_name(const std::string& tensor);
// The results with the gradient that the operator declares.
std::vector<graph::ValueId> with_declared_gradient(graph::Builder& builder, const UserOperator& op,
                                                   const Bindings& bindings,
                                                   const std::vector<graph::ValueId>& inputs,
                                                   const std::vector<graph::ValueId>& results);

// Builds a call, by its body or by another.
std::vector<graph::ValueId> build_operator(graph::Builder& builder, const UserOperator& op,
                                           const OperatorBody& body, const graph::OperatorCall& call,
                                           const KernelHost& host = {});

// A call of a kernel, whose names have the values of `bindings`. The inputs are those of the declaration, in
// order; `results` are the types of the outputs.
std::vector<graph::ValueId> build_kernel(graph::Builder& builder, const UserOperator& op,
                                         const KernelBody& body, const std::vector<graph::ValueId>& inputs,
                                         Bindings& bindings, const std::vector<graph::Type>& results,
                                         const KernelHost& host);

// What calls of an operator meet beyond its declaration.
struct CallConditions {
  std::vector<Term> where;
  std::vector<bool> constant;                           // by input: the contents are known when compiling
  std::map<std::string, Attr, std::less<>> attributes;  // that have these values, and no others
};

struct ReferenceCheck {
  // Kernels without a reference run too, and each at several strides, numbers of calls and contents of
  // memory, which change nothing.
  bool all = false;
  CallConditions conditions;
  // The reference may fit fewer sizes than the declaration: it is only used where it fits.
  bool narrow = false;
};

// Compares bodies with their references on drawn inputs: kernels by their text in C, other bodies on the
// interpreter. Throws Error (kDoesNotFit, "wrong-operator") with the inputs for which results differ, or for
// which a kernel touches what is not its own.
void check_references(const OperatorFile& file, const KernelHost& host, const ReferenceCheck& how);

// A draft of a file that declares the operators of these calls: inputs, attributes and shapes as they were
// seen. JSON, ends with a newline.
std::string draft_operators(const std::vector<graph::UnknownCall>& calls);

}  // namespace stridec::extend

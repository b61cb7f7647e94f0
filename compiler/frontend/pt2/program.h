// An exported program as its JSON describes it (torch/_export/serde/schema.py, major version 8), decoded and
// checked for form. Nothing here knows what an operator means.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stridec::pt2 {

// An integer, or an expression as text (expression.h).
struct Size {
  std::optional<int64_t> value;
  std::string text;
};

struct TensorMeta {
  int scalar_type = 0;  // numbering of the format, not of c10
  int layout = 7;
  std::vector<Size> sizes, strides;
  Size offset;
};

struct Graph;

struct Argument {
  enum class Kind : uint8_t {
    kNone,
    kTensor,  // text: name
    kInt,
    kFloat,
    kBool,
    kString,    // text
    kSymInt,    // text: name
    kSymFloat,  // text: name
    kSymBool,   // text: name
    kComplex,   // number, imaginary
    kScalarType,
    kMemoryFormat,
    kLayout,
    kDevice,  // text
    kList,    // items
    kGraph,   // text: name, graph
    kOther,   // text: what it is
  };
  Kind kind = Kind::kNone;
  std::string text;
  int64_t integer = 0;
  double number = 0, imaginary = 0;
  std::vector<Argument> items;
  std::shared_ptr<const Graph> graph;
};

struct NamedArgument {
  std::string name;
  Argument value;
};

struct Node {
  std::string target, name, stack_trace;
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;
};

struct Graph {
  std::vector<Argument> inputs, outputs;
  std::vector<Node> nodes;
  std::unordered_map<std::string, TensorMeta> tensors;
  std::unordered_map<std::string, Size> sizes;
};

struct InputSpec {
  enum class Kind : uint8_t { kUser, kParameter, kBuffer, kConstant, kCustomObject, kToken, kFixed };
  Kind kind = Kind::kUser;
  Argument argument;   // kFixed: the value; otherwise as in graph.inputs
  std::string target;  // name of the parameter, buffer or constant; of a fixed input its own name
};

struct OutputSpec {
  enum class Kind : uint8_t { kUser, kBufferMutation, kParameterMutation, kInputMutation, kToken, kGradient };
  Kind kind = Kind::kUser;
  Argument argument;
  std::string target;  // of a mutation
};

struct Range {
  std::optional<int64_t> lower, upper;
};

struct Program {
  Graph graph;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::map<std::string, Range> ranges;
  std::vector<std::string> guards;
  std::string in_spec, out_spec;
  std::vector<std::string> argument_names;
  std::map<std::string, std::vector<std::string>> namedtuple_fields;
  std::string torch_version;
  int64_t schema_major = 0, schema_minor = 0;
};

// Throws Error kMalformed for text that is not such a program, kUnsupported for another major version.
Program decode_program(std::string_view json);

// One weight of PayloadConfig: where its storage is in the archive, and the tensor's layout in it.
struct Payload {
  std::string path;
  bool pickled = false;
  std::optional<TensorMeta> meta;
};
std::map<std::string, Payload> decode_payloads(std::string_view json);

}  // namespace stridec::pt2

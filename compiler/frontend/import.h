// Imports a model file of any supported format as a graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/common/operator_info.h"
#include "compiler/frontend/input_shape.h"
#include "compiler/frontend/states.h"
#include "compiler/graph/given_weights.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/model_node.h"
#include "compiler/graph/named_sizes.h"
#include "compiler/graph/user_operators.h"
#include "compiler/ops/composite/torch_random.h"

namespace stridec::frontend {

using DimRange = graph::SizeRange;  // of `--dim batch=1..64%8`
// Parses "batch=1..64,seq=1..512%8,h=32". Throws a usage Error.
std::vector<DimRange> parse_dims(std::string_view text);

// "1..64%8", the syntax that parse_dims reads after a name.
std::string to_string(const DimRange& dim);

// `--input-value sr=16000`: element values that the caller guarantees for an integer or bool input.
struct InputValue {
  std::string name;
  std::vector<int64_t> values;  // one for each element
};
InputValue parse_input_value(std::string_view text);  // throws a usage Error
std::string to_string(const InputValue& value);       // "16000", "1,0,1"

// The weights that a training changes (compiler/train).
struct TrainingImport {
  // Floats by name, with `*`, without `frozen`. Scalars, and weights that the file does not call parameters
  // (buffers of a PyTorch module), are only trained if the whole name is given.
  std::vector<std::string> trainable, frozen;
  // Weights that stay constants, but are not merged with equal constants.
  std::vector<std::string> apart = {};
  // Batch normalization uses the statistics of the batch and updates its running ones, dropout drops.
  bool training_form = false;
};

struct ImportOptions {
  std::vector<DimRange> dims;
  std::vector<InputShape> shapes;
  std::vector<InputValue> input_values;
  std::vector<StatePattern> states;
  std::vector<std::string> refit;  // names of weights that become parameters (parameters.h)
  // Weights that are trained become parameters, and so do running statistics that are not frozen.
  std::optional<TrainingImport> training;
  // Named sizes stay symbols even if `dims` fixes them; `dims` then only fixes sequence lengths and ranks.
  bool sizes_stay_open = false;
  // Replaces the name in the file if exporters give that name to every model; "": keep it.
  std::string name = {};
  // The method of a TorchScript module that is compiled, or the program of a .pt2 archive; "": forward, or
  // the only program.
  std::string method = {};
  // Random draws of PyTorch files have the same bits as those of this generator of PyTorch.
  std::optional<ops::TorchGenerator> torch_random;
  bool missing_weights_are_zero = false;  // to inspect a model without its weight files
  const graph::GivenWeights* weights =
      nullptr;  // values of weights that the model's own file lacks; null: none
  // If set, a flag that names what the model lacks is recorded here and ignored, instead of an error: "--dim
  // NAME", "--shape NAME", "--input-value NAME", "--state INPUT", "--refit PATTERN".
  std::set<std::string>* absent = nullptr;
  // Operators of the user, which come before the compiler's own; null: none.
  const graph::UserOperators* operators = nullptr;
};

// What model a file with these bytes is, by their form alone: "an ONNX model". Empty if it is none.
std::string model_kind(std::string_view file);

// What a model consists of, for people.
struct ModelFacts {
  std::map<std::string, int64_t>
      operators;  // how many nodes of each, subgraphs included; other domains' as "com.x:Op"
  // Elements and bytes of its constant tensors: initializers, and the values of Constant nodes.
  int64_t parameters = 0;
  uint64_t parameter_bytes = 0;
  std::map<std::string, std::string> metadata;  // that the file itself has, by key
};

struct Imported {
  graph::Graph graph;
  // Everything that prevents compilation; the graph is complete if this is empty.
  std::vector<Diagnostic> problems;
  std::vector<Diagnostic> warnings;  // where the model's declarations are wrong, and what is used instead
  ModelFacts facts = {};
  std::string summary;             // "opset 18, 585 nodes, weights 437.9 MB"
  std::vector<std::string> files;  // the model file and its external data files
  std::vector<graph::ModelNode> nodes = {};
  std::vector<graph::UnknownCall> unknown = {};  // nodes whose operators are unknown
};

// Detects the format from the contents: ONNX, or a serialized graph (compiler/graph/serialize.h). Throws
// Error for files that cannot be read at all.
Imported import_file(const std::string& path, const ImportOptions& options = {});

// All operators that have an import row or that ONNX defines, sorted by name.
std::vector<OperatorInfo> operators();

// Combines several problems into one Error: the first, with the others as notes.
Error as_error(const std::vector<Diagnostic>& problems, const std::string& file);

}  // namespace stridec::frontend

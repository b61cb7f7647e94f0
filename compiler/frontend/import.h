// A model file of any format as a graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/operator_info.h"
#include "compiler/frontend/states.h"
#include "compiler/graph/graph.h"

namespace stridec::frontend {

// `--dim batch=1..64%8`: what the caller promises about a named size of the model.
struct DimRange {
  std::string name;
  std::optional<int64_t> lower, upper;
  int64_t multiple = 1;
  bool fixed() const { return lower && upper == lower; }
};
// Parses "batch=1..64,seq=1..512%8,h=32". Throws a usage Error.
std::vector<DimRange> parse_dims(std::string_view text);

// "1..64%8", as parse_dims reads it behind a name.
std::string to_string(const DimRange& dim);

// `--input-value sr=16000`: what the caller promises about the elements of an input of integers or bools.
struct InputValue {
  std::string name;
  std::vector<int64_t> values;  // one for all elements, or one for each
};
InputValue parse_input_value(std::string_view text);  // throws a usage Error
std::string to_string(const InputValue& value);       // "16000", "1,0,1"

struct ImportOptions {
  std::vector<DimRange> dims;
  std::vector<InputValue> input_values;
  std::vector<StatePattern> states;
  // A named size that `dims` fixes stays a symbol all the same: what `dims` fixes are lengths and ranks alone.
  bool sizes_stay_open = false;
  bool missing_weights_are_zero = false;  // to look at a model whose weights are elsewhere
};

struct Imported {
  graph::Graph graph;
  std::vector<Diagnostic>
      problems;  // what stands in the way of compiling, all of it; the graph is whole if there is none
  std::vector<Diagnostic> warnings;  // what the model says otherwise than it is, and what holds
  std::string summary;               // "opset 18, 585 nodes, weights 437.9 MB"
  std::vector<std::string> files;    // that it came from: the model's, and those with its external data
};

// By its contents: ONNX, or a serialized graph (compiler/graph/serialize.h). Throws Error for files that cannot be read at all.
Imported import_file(const std::string& path, const ImportOptions& options = {});

// Every operator with a row and every other one of ONNX, by name.
std::vector<OperatorInfo> operators();

// One Error for several problems: the first, with the others as notes.
Error as_error(const std::vector<Diagnostic>& problems, const std::string& file);

}  // namespace stridec::frontend

// Imports an exported program as a graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/given_weights.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/model_node.h"
#include "compiler/graph/named_sizes.h"
#include "compiler/graph/user_operators.h"
#include "compiler/ops/composite/torch_random.h"

namespace stridec::pt2 {

struct ImportOptions {
  std::vector<graph::SizeRange> dims;
  std::map<std::string, std::vector<int64_t>> input_values;  // the only elements of inputs of integers
  graph::Builder::Replaceable replaceable;  // which weights may be replaced after compilation; empty: none
  bool only_parameters = false;             // buffers and constants are not replaceable
  bool sizes_stay_open = false;             // symbols that `dims` fixes stay symbols
  bool missing_weights_are_zero = false;
  const graph::GivenWeights* weights = nullptr;     // frontend::ImportOptions
  std::string program = {};                         // of an archive of several; "": the only one
  std::optional<ops::TorchGenerator> torch_random;  // frontend::ImportOptions
  std::set<std::string>* absent = nullptr;          // frontend::ImportOptions
  const graph::UserOperators* operators = nullptr;  // likewise
};

struct Imported {
  graph::Graph graph;
  std::vector<Diagnostic> problems;  // everything that prevents compilation
  std::vector<Diagnostic> warnings;
  std::string summary;  // "PyTorch 2.15.0, 197 nodes, weights 44.7 MB"
  std::vector<graph::ModelNode> nodes = {};
  std::vector<graph::UnknownCall> unknown = {};  // nodes whose operators are unknown
};

bool is_program(const graph::Data& file);

// Collects what is not supported as problems and continues. Throws Error for files that cannot be read.
//
// Names. Inputs and outputs are named by their place in the module's arguments and results ("past.0.key").
// A symbolic dim is named after the first input that has it ("x.0").
// Writes. A buffer, parameter or constant that the program writes is a state that starts with the file's
// value. An input that it writes has its new value in the additional output "NAME.updated".
Imported import_program(const std::string& path, const graph::Data& file, const ImportOptions& options);

}  // namespace stridec::pt2

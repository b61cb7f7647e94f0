// Imports a Model as a graph::Graph. Each node is expanded to primitives and composites by one row of a table
// (import_rows.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/model.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/model_node.h"
#include "compiler/graph/named_sizes.h"
#include "compiler/graph/user_operators.h"

namespace stridec::onnx {

// The contents of a sequence or optional input, one shape per tensor; no shape: as the model declares it. The
// items of sequence `x` are the inputs `x[0]`, `x[1]`, ...; the tensor in optional `x` is input `x`.
struct InputItems {
  bool present = true;  // for an optional: whether it holds a tensor
  std::vector<std::optional<std::vector<Dim>>> shapes;
};

struct ImportOptions {
  // By symbol. The name of a sequence or optional input stands for its length, NAME.rank for a rank that the
  // model leaves open.
  std::vector<graph::SizeRange> dims;
  // Inputs with a value known at compile time; they are not inputs of the artifact.
  std::map<std::string, Tensor> constants;
  // Integer inputs whose elements the caller guarantees, one value for all elements or one per element. They
  // stay inputs and the run checks them; compilation may assume the values.
  std::map<std::string, std::vector<int64_t>> input_values;
  // By input: the contents of a sequence or optional, if `dims` cannot describe them.
  std::map<std::string, InputItems> items;
  // Which initializers may be replaced after compilation; empty: none.
  graph::Builder::Replaceable replaceable;
  // Batch normalization with replaceable statistics is in its training form, and updates them; dropout drops.
  bool training_form = false;
  bool sizes_stay_open = false;  // symbols that `dims` fixes stay symbols; lengths and ranks are fixed
  std::set<std::string>* absent = nullptr;          // frontend::ImportOptions
  const graph::UserOperators* operators = nullptr;  // likewise
};

struct Imported {
  graph::Graph graph;                // complete only if there are no problems
  std::vector<Diagnostic> problems;  // everything that is not supported, in node order
  std::vector<Diagnostic> warnings;  // where the model's declarations are wrong
  std::vector<graph::ModelNode> nodes = {};
  std::vector<graph::UnknownCall> unknown = {};  // nodes whose operators are unknown
};

// Collects unsupported and contradictory nodes as problems instead of throwing, and skips nodes that depend
// on them. Throws Error for flags that do not fit the model and for defects of stridec.
Imported import_model(const Model& model, const ImportOptions& options = {});

}  // namespace stridec::onnx

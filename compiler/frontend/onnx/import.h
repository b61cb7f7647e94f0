// Model -> graph::Graph: each node becomes primitives and composites through one row of a table
// (import_rows.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/onnx/model.h"
#include "compiler/graph/graph.h"

namespace stridec::onnx {

// What `--dim name=lower..upper%multiple` says about a symbol.
struct DimRange {
  int64_t lower = 0;
  std::optional<int64_t> upper;
  int64_t multiple = 1;
  bool fixed() const { return upper == lower; }
};

// What a sequence or optional input holds, one shape per tensor; none: as the model declares it. The items of
// sequence `x` are the inputs `x[0]`, `x[1]`, ...; the tensor in optional `x` is input `x`.
struct InputItems {
  bool present = true;  // of an optional
  std::vector<std::optional<std::vector<Dim>>> shapes;
};

struct ImportOptions {
  std::map<std::string, DimRange> dims;  // by symbol; lower == upper fixes it. The name of a sequence or
                                         // optional input stands for its length, NAME.rank for a rank
                                         // that the model leaves open.
  std::map<std::string, Tensor>
      constants;  // inputs with a value known now: they are no inputs of the artifact
  // Inputs of integers whose elements the caller promises, one value for all or one for each: they stay inputs, the run
  // checks them, and what is computed may assume them.
  std::map<std::string, std::vector<int64_t>> input_values;
  std::map<std::string, InputItems> items;  // by input: what a sequence or optional holds, where `dims` is
                                            // too little
  bool sizes_stay_open = false;             // a symbol that `dims` fixes stays one; lengths and ranks do not
};

struct Imported {
  graph::Graph graph;                // complete only if there are no problems
  std::vector<Diagnostic> problems;  // everything that this build cannot take, in the order of the nodes
  std::vector<Diagnostic> warnings;  // what the model says and does not do
};

// Unsupported and contradictory nodes are collected, not thrown: what depends on them is skipped. Throws
// Error for flags that do not fit the model and for defects of stridec.
Imported import_model(const Model& model, const ImportOptions& options = {});

}  // namespace stridec::onnx

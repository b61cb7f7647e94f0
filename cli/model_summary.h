// What a model takes, computes and consists of: the start of `check` and of `inspect MODEL`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compiler/frontend/import.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/value_range.h"

namespace stridec::cli {

// Inputs and outputs with types, sizes and ranges of values; parameters; operators by count; flops of a run.
// `complete`: the import met no problem, so that the graph can be lowered.
struct ModelSummary {
  struct Value {
    std::string name;
    graph::Type type;
    loop::ValueRange range;
  };
  std::vector<Value> inputs, outputs, states;
  frontend::ModelFacts facts;
  double flops = -1;  // below 0: not known
  std::string sizes;  // that the flops are for: "batch 1, sequence 128"
};
ModelSummary summarize(const graph::Graph& graph, const frontend::ModelFacts& facts, bool complete);

std::string to_text(const ModelSummary& summary);
// Values as the manifest has them: "shape" a list of numbers and expressions, "range" with its bounds.
nlohmann::ordered_json to_json(const ModelSummary& summary);

}  // namespace stridec::cli

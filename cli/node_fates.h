// What became of each node of a model, from a compilation or from the manifest of an artifact.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/compilation.h"

namespace stridec::cli {

struct NodeRow {
  std::string node, fate, by, with;
  struct Kernel {
    std::string name;
    std::vector<int> steps;  // of the runtime's profile
  };
  std::vector<Kernel> kernels;     // of fate "kernel"; of "routine": the routine
  std::vector<std::string> rules;  // of the user, that replaced its operations
};

// In the model's order.
std::vector<NodeRow> nodes_of(const FunctionResult& made);
// `function`: the manifest, or one of its functions. A manifest before 1.4 has the nodes of kernels alone.
std::vector<NodeRow> nodes_of(const nlohmann::ordered_json& function);

// "585 nodes: 402 in kernels, 103 views, 80 constants".
std::string summary_of(const std::vector<NodeRow>& nodes);
std::string nodes_text(const std::vector<NodeRow>& nodes);
nlohmann::ordered_json nodes_json(const std::vector<NodeRow>& nodes);

}  // namespace stridec::cli

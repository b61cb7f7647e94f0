// The names of values in the arguments of a program's nodes.
#pragma once

#include <string>
#include <unordered_set>

#include "compiler/frontend/pt2/program.h"

namespace stridec::pt2 {

template <class F>
void for_names(const Argument& a, F&& f) {
  using Kind = Argument::Kind;
  if (a.kind == Kind::kTensor || a.kind == Kind::kSymInt || a.kind == Kind::kSymFloat ||
      a.kind == Kind::kSymBool)
    f(a.text);
  for (const Argument& item : a.items) for_names(item, f);
}

// The values that a node of the graph reads, or that are the graph's results.
inline std::unordered_set<std::string> names_read(const Graph& graph) {
  std::unordered_set<std::string> out;
  const auto add = [&](const std::string& name) { out.insert(name); };
  for (const Node& node : graph.nodes)
    for (const NamedArgument& input : node.inputs) for_names(input.value, add);
  for (const Argument& output : graph.outputs) for_names(output, add);
  return out;
}

}  // namespace stridec::pt2

// What became of each node of the model: the kernels that compute it, or why there are none.
//
// A NodeTrace looks at the IR after each pass and remembers where each node was last seen. Nodes are
// identified by their text (graph::Node::origin), which graph text, loops, schedule and manifest share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/graph/model_node.h"
#include "compiler/loop/program.h"
#include "compiler/package/manifest.h"

namespace stridec {

class NodeTrace {
 public:
  NodeTrace() = default;
  explicit NodeTrace(std::vector<graph::ModelNode> nodes) : nodes_(std::move(nodes)) {}

  // The graph as imported, before dead-code elimination. Without a list of nodes, the graph's origins are
  // the nodes.
  void imported(const graph::Graph& graph);
  // `replaced_by`: for a node's text, what replaced it; this is reported instead of the pass.
  void after(std::string_view pass, const graph::Graph& graph,
             const std::map<std::string, std::string>& replaced_by = {});
  void after(std::string_view pass, const loop::Program& program);

  // A pass of the user renamed nodes, by their old texts. Nodes that get one text share one fate.
  void rename(const std::map<std::string, std::string>& names);

  // One for each node, in the model's order. `program`: the last that `after` was called with.
  std::vector<package::NodeFate> fates(const loop::Program& program) const;

 private:
  // The nature of a node is the last of these that one of its operations has.
  enum class Nature : uint8_t { kNone, kConstant, kSize, kView, kControl, kCompute };
  struct Seen {
    Nature nature = Nature::kNone;  // as imported
    bool present = false;
    std::string lost = "import";  // the first pass after which it was missing
  };

  void mark(std::string_view pass, const std::vector<bool>& present,
            const std::map<std::string, std::string>& replaced_by = {});
  std::vector<Nature> natures_of(const graph::Graph& graph) const;
  package::NodeFate fate_without_kernel(size_t node) const;

  std::vector<graph::ModelNode> nodes_;
  std::vector<Seen> seen_;                         // per node
  std::unordered_map<std::string, size_t> place_;  // index into nodes_, by text
};

}  // namespace stridec

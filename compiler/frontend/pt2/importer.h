// The state of an import: what the names of a program mean, and the graph under construction.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/pt2/archive.h"
#include "compiler/graph/model_node.h"
#include "compiler/graph/user_operators.h"

namespace stridec::pt2 {

// "acme::swiglu" for "torch.ops.acme.swiglu.default"; "" for what is not an operator of torch.ops.
std::string user_name(const std::string& target);

using Scope = std::unordered_map<std::string, aten::Value>;

class Importer {
 public:
  explicit Importer(graph::Builder& builder) : b(builder) {}

  graph::Builder& b;
  std::map<std::string, sym::Expr> symbols;  // of the program's expressions: "s77"
  std::vector<Diagnostic> problems;
  bool autocast = false;                 // the nodes are in a region of torch.autocast
  std::set<std::string> unsupported;     // targets without an import, reported beforehand
  std::unordered_set<const Node*> dead;  // nodes that are left out (liveness.h)
  std::vector<graph::ModelNode> nodes;   // those that run() met
  const graph::UserOperators* operators = nullptr;
  std::vector<graph::UnknownCall> unknown;  // nodes of `unsupported` targets

  bool is_user(const std::string& target) const { return operators && operators->has(user_name(target)); }

  // Runs the nodes of a graph. Nodes that cannot be imported become problems, and their results are failed.
  void run(const Graph& graph, Scope& scope);
  // A subgraph of a higher-order operator: its results. Throws Failed if one of them is.
  std::vector<aten::Value> run_subgraph(const Graph& graph, const std::vector<aten::Value>& arguments);
  struct Failed {};

  aten::Value value_of(const Argument& argument, const Scope& scope) const;
  std::optional<sym::Expr> expression(const Size& size) const;

 private:
  std::vector<aten::Value> import_node(const Graph& graph, const Node& node, const Scope& scope);
  std::vector<aten::NamedValue> arguments_of(const Node& node, const Scope& scope) const;
  std::vector<aten::Value> call_user(const Node& node, const Scope& scope);
  void cast_operands(const Graph& graph, const Node& node, std::vector<aten::NamedValue>& args);
  void define(const Graph& graph, const Argument& output, aten::Value value, Scope& scope, const Node& node);
  void round_statistics(const Graph& graph, const Argument& output, aten::Value& value);
  void check_tensor(const TensorMeta& meta, aten::Value& value);
  void check_dtype(const TensorMeta& meta, const aten::Value& value);
  void take_layout(const TensorMeta& meta, aten::Tensor& tensor);
  bool may_be_misstated(const Node& node, const TensorMeta& meta, const graph::Shape& shape) const;
  void note_unknown(const Graph& graph, const Node& node, const Scope& scope);
  void note_outcome(size_t listed, const Node& node, const std::vector<aten::Value>& results,
                    const Scope& scope);

  int position_ = 0;
  std::unordered_set<std::string> misstated_;  // values of other shapes than the file states
};

// The operator's name for messages: "aten.linear.default".
std::string short_target(const std::string& target);
// Null if PyTorch has no such operator.
const aten::Schema* schema_of(const std::string& target);
// Whether an import exists.
bool is_supported(const std::string& target);

// ---- higher-order operators (control_flow.cpp)
bool is_higher_order(const std::string& target);
std::vector<aten::Value> import_higher_order(Importer& importer, const Node& node, const Scope& scope);

}  // namespace stridec::pt2

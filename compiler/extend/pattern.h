// A rule's pattern, prepared for matching: each term is resolved once, and a cheap test rejects most nodes at
// which the pattern does not occur.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/graph/graph.h"

namespace stridec::extend {

// The users of each value and the region of each node. Rewriting keeps the index up to date.
struct GraphIndex {
  explicit GraphIndex(const graph::Graph& graph);
  void look(const graph::Graph& graph, const graph::Region& region);
  void grow(const graph::Graph& graph);  // call after nodes and values were added or removed
  // splat() of match_template.h, computed once for each value.
  const std::optional<double>& splat(const graph::Graph& graph, graph::ValueId value) const;

  std::vector<std::vector<graph::NodeId>> users;  // by value; a node occurs once per operand
  std::vector<int> held;                          // by value: number of region results that are this value
  std::vector<const graph::Region*> region;       // by node; null: not in the graph

 private:
  mutable std::vector<std::optional<std::optional<double>>> splats_;  // by value
};

// A resolved term of a pattern.
struct PatternPart {
  enum class Kind { kName, kNumber, kPrimitive, kKeptReduction, kMatmul, kComposite };
  Kind kind = Kind::kName;
  std::optional<graph::OpKind> op;  // of a primitive, and of a reduction
  bool commutative = false;         // a primitive of two operands that may be in either order
  const Composite* composite = nullptr;
  const Variable* variable = nullptr;      // of a name
  const Definition* definition = nullptr;  // of a name
  Split split;                             // of a call
};

class Pattern {
 public:
  explicit Pattern(const Rule& rule);

  const Rule& rule() const { return rule_; }
  const PatternPart& part(const Term& term) const { return parts_.at(&term); }
  // The kinds of the operation that produces the last result.
  const std::vector<graph::OpKind>& root_kinds() const { return root_kinds_; }
  // An upper bound on the operations on a path from an input of the pattern to its root, inclusive.
  int depth() const { return depth_; }
  // A cheap necessary condition for Matcher::match() at this node, by operations, numbers, dtypes and ranks
  // only.
  bool may_match(const graph::Graph& graph, const GraphIndex& index, graph::NodeId root) const;

 private:
  void add(const Term& term);
  int depth_of(const Term& term, int names) const;
  bool may_match(const graph::Graph& graph, const GraphIndex& index, const Term& term, graph::ValueId value,
                 int& steps) const;

  const Rule& rule_;
  std::unordered_map<const Term*, PatternPart> parts_;
  std::vector<graph::OpKind> root_kinds_;
  int depth_ = 0;
};

// Whether the number `term` matches a tensor of this dtype whose elements all equal `constant`.
bool is_number(const Term& term, DType dtype, double constant);

// The output of the root node that is the pattern's last result; nullopt if the node has too few outputs.
std::optional<graph::ValueId> root_value(const Rule& rule, const graph::Node& node);

}  // namespace stridec::extend

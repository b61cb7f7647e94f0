// A rule's pattern, prepared for matching: what each of its terms stands for is looked up once, and a test
// that costs little leaves out most of the places where it does not occur.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/graph/graph.h"

namespace stridec::extend {

// Who reads each value, and where each node is. Kept up to date by rewriting.
struct GraphIndex {
  explicit GraphIndex(const graph::Graph& graph);
  void look(const graph::Graph& graph, const graph::Region& region);
  void grow(const graph::Graph& graph);  // after nodes and values were added, or taken back
  // splat() of match_template.h, computed once for each value.
  const std::optional<double>& splat(const graph::Graph& graph, graph::ValueId value) const;

  std::vector<std::vector<graph::NodeId>> users;  // by value; a node for each of its operands
  std::vector<int> held;                          // by value: how many region results it is
  std::vector<const graph::Region*> region;       // by node; null: not in the graph

 private:
  mutable std::vector<std::optional<std::optional<double>>> splats_;  // by value
};

// What a term of a pattern is.
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
  // The operations that the last result may begin with.
  const std::vector<graph::OpKind>& root_kinds() const { return root_kinds_; }
  // How many operations lie between the root and what the rule reads, at most.
  int depth() const { return depth_; }
  // False where Matcher::match() would find no match at this node: by operations, numbers, dtypes and ranks
  // alone. True says nothing.
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

// Whether a number of a pattern stands for the number that all elements of a constant of this dtype are.
bool is_number(const Term& term, DType dtype, double constant);

// The value of the root node that the last result of the pattern is; nullopt: the node has too few.
std::optional<graph::ValueId> root_value(const Rule& rule, const graph::Node& node);

}  // namespace stridec::extend

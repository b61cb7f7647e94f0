// The only way to make nodes: infers dtype and symbolic shape, propagates known elements of small integer
// tensors, folds what is trivially foldable (a reshape to the same shape, a cast to the same dtype, pointwise
// arithmetic on known elements), shares equal nodes (hash-consing within a region), and records guards.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

class Builder;

// What a shape function returns: the types of the outputs and, where known, their elements.
struct Inferred {
  std::vector<Type> types;
  std::vector<std::optional<std::vector<sym::Expr>>> elements;  // may be shorter than types
};
// Checks a node's inputs and attributes and infers its outputs. Throws Error (kDoesNotFit) with the reason;
// conditions that only run time can decide become guards through builder.require().
using ShapeFn = Inferred (*)(Builder& builder, const Node& node);
struct ShapeTable {
  ShapeFn fns[kOpCount];
};

// Tensors with more elements than this carry no symbolic elements.
inline constexpr int64_t kMaxElements = 1024;

class Builder {
 public:
  Builder(Graph& graph, const ShapeTable& shapes);

  // -- inputs, constants, states
  ValueId input(std::string name, Type type);
  ValueId state(std::string name, Type type, std::optional<Data> initial);
  ValueId constant(std::string name, Type type, Data data);                         // shape is constant
  ValueId scalar(DType dtype, double value);                                        // rank 0
  ValueId integers(const std::vector<int64_t>& values, DType dtype = DType::kI64);  // rank 1
  ValueId elements(const std::vector<sym::Expr>& values, Shape shape,
                   DType dtype = DType::kI64);  // shape is constant

  // -- nodes
  std::vector<ValueId> add(OpKind kind, std::vector<ValueId> inputs, Attributes attributes = {});
  ValueId add1(OpKind kind, std::vector<ValueId> inputs, Attributes attributes = {});  // the single output
  // Control flow. begin_region() makes a region current; end_region() gives it back for add_with_regions().
  // `assumption` holds inside (the condition of a branch); under 0 nothing runs, and nothing is required.
  void begin_region(const std::vector<Type>& parameters, sym::Expr assumption = 1);
  std::vector<ValueId> parameters() const;  // of the current region
  Region end_region(std::vector<ValueId> results);
  std::vector<ValueId> add_with_regions(OpKind kind, std::vector<ValueId> inputs, Attributes attributes,
                                        std::vector<Region> regions);

  void output(std::string name, ValueId value);

  // -- facts
  const Type& type(ValueId value) const { return graph_[value].type; }
  const Shape& shape(ValueId value) const { return graph_[value].type.shape; }
  DType dtype(ValueId value) const { return graph_[value].type.dtype; }
  int rank(ValueId value) const { return static_cast<int>(shape(value).size()); }
  sym::Facts& facts() { return graph_.facts; }
  // Known contents of an integer tensor: its elements or, for a small constant, its data. nullopt: unknown.
  std::optional<std::vector<sym::Expr>> known(ValueId value) const;
  // Like known(), but contents that only the run will tell become fresh symbols (a symbol_of node each).
  std::vector<sym::Expr> elements_of(ValueId value, const std::string& hint, sym::Expr lower,
                                     sym::Expr upper);
  // A symbol that no input gives: bound during the run, in [lower, upper].
  sym::Expr fresh_symbol(const std::string& hint, sym::Expr lower, sym::Expr upper);
  // Such a symbol, with the value of an integer scalar; a number outside ends the run.
  sym::Expr symbol_of(ValueId scalar, const std::string& hint, sym::Expr lower, sym::Expr upper);
  // The condition holds: proven, or it becomes a guard with this sentence ({0} ... are the values). Throws
  // Error (kDoesNotFit) with the sentence where it is proven wrong. A condition inside a region, or on a
  // symbol that the run binds, is checked when the run gets there.
  void require(sym::Expr condition, std::string sentence, std::vector<sym::Expr> values = {});
  // What follows here, from the graph's facts and what the open regions and earlier checks imply.
  sym::Answer prove(sym::Expr condition) const;
  bool holds(sym::Expr condition) const { return prove(condition) == sym::Answer::kYes; }
  sym::Expr simplify(sym::Expr e) const;
  sym::Facts known_facts() const;
  bool is_bound_in_run(sym::Expr e) const;   // mentions a symbol that no input gives
  std::string display(ValueId value) const;  // for messages: 'name' or %7

  // The model's node that new nodes come from.
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  const std::string& origin() const { return origin_; }
  void set_name(ValueId value, std::string name);  // keeps the first name

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }

 private:
  struct Open {
    Region region;
    size_t assumed;              // conditions assumed before it
    std::vector<ValueId> given;  // values that got their elements inside
  };

  Region& current();
  ValueId new_value(Type type);
  std::optional<NodeId> find_shared(const Node& node) const;
  std::vector<ValueId> append(Node node, std::vector<Type> types, bool to_top);
  std::optional<ValueId> same_as(const Node& node, const Inferred& inferred) const;
  void skip_views(Node& node) const;
  void rotate_pieces(Node& node) const;
  void explain(Error& error, const Node& node) const;
  static std::string escaped(const std::string& text);

  Graph& graph_;
  const ShapeTable& shapes_;
  std::vector<Open> open_;  // nested regions under construction
  std::vector<std::unordered_map<size_t, std::vector<NodeId>>>
      shared_;  // of the top region, then per open region
  std::unordered_set<sym::Expr, sym::ExprHash> bound_in_run_;
  std::vector<sym::Expr> assumed_;
  std::string origin_;
  int next_symbol_ = 0;
};

}  // namespace stridec::graph

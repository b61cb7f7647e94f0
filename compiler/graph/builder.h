// The only way to create nodes. Infers dtype and symbolic shape, propagates the known elements of small
// integer tensors, folds trivial cases (a reshape to the same shape, a cast to the same dtype, pointwise
// arithmetic on known elements), shares equal nodes (hash-consing within a region), and records guards.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

class Builder;

// The result of a shape function: the types of the outputs and their elements where they are known.
struct Inferred {
  std::vector<Type> types;
  std::vector<std::optional<std::vector<sym::Expr>>> elements;  // may be shorter than types
};
// Checks a node's inputs and attributes and infers its outputs. Throws Error (kDoesNotFit) with the reason.
// Conditions that can only be decided at run time become guards through builder.require().
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
  // The shape is constant. Becomes a parameter if set_replaceable's function says so.
  ValueId constant(std::string name, Type type, Data data);
  ValueId scalar(DType dtype, double value);                                        // rank 0
  ValueId integers(const std::vector<int64_t>& values, DType dtype = DType::kI64);  // rank 1
  // The shape is constant.
  ValueId elements(const std::vector<sym::Expr>& values, Shape shape, DType dtype = DType::kI64);

  // -- nodes
  std::vector<ValueId> add(OpKind kind, std::vector<ValueId> inputs, Attributes attributes = {});
  // the node's single output
  ValueId add1(OpKind kind, std::vector<ValueId> inputs, Attributes attributes = {});
  // Control flow. begin_region() makes a region current; end_region() returns it, for add_with_regions().
  // `assumption` holds inside the region (the condition of a branch). If it is 0, the region never runs and
  // require() has no effect in it.
  void begin_region(const std::vector<Type>& parameters, sym::Expr assumption = 1);
  std::vector<ValueId> parameters() const;  // of the current region
  Region end_region(std::vector<ValueId> results);
  std::vector<ValueId> add_with_regions(OpKind kind, std::vector<ValueId> inputs, Attributes attributes,
                                        std::vector<Region> regions);

  void output(std::string name, ValueId value);

  // -- parameters: constants that keep their name and whose bytes may be replaced after compilation
  using Replaceable = std::function<bool(std::string_view name, const Type& type)>;
  void set_replaceable(Replaceable replaceable) { replaceable_ = std::move(replaceable); }
  // Turns a parameter into a constant, since its value decides sizes or the choice of operations.
  void fix(ValueId value) { graph_[value].replaceable = false; }

  // -- facts
  const Type& type(ValueId value) const { return graph_[value].type; }
  const Shape& shape(ValueId value) const { return graph_[value].type.shape; }
  DType dtype(ValueId value) const { return graph_[value].type.dtype; }
  int rank(ValueId value) const { return static_cast<int>(shape(value).size()); }
  sym::Facts& facts() { return graph_.facts; }
  // The known contents of an integer tensor: its elements or, for a small constant, its data. nullopt:
  // unknown.
  std::optional<std::vector<sym::Expr>> known(ValueId value) const;
  // Like known(), but contents that are only known at run time become fresh symbols, each with a symbol_of
  // node.
  std::vector<sym::Expr> elements_of(ValueId value, const std::string& hint, sym::Expr lower,
                                     sym::Expr upper);
  // A symbol that no input determines. It is bound during the run, in [lower, upper].
  sym::Expr fresh_symbol(const std::string& hint, sym::Expr lower, sym::Expr upper);
  // Such a symbol with the value of an integer scalar. A value outside [lower, upper] ends the run with an
  // error.
  sym::Expr symbol_of(ValueId scalar, const std::string& hint, sym::Expr lower, sym::Expr upper);
  // Requires the condition: it is proven, or becomes a guard with this sentence ({0} ... are the values).
  // Throws Error (kDoesNotFit) with the sentence if the condition is proven false. A condition inside a
  // region, or on a symbol that is bound during the run, is checked when the run reaches it.
  void require(sym::Expr condition, std::string sentence, std::vector<sym::Expr> values = {});
  // What is known at this point, from the graph's facts, the assumptions of the open regions and earlier
  // checks.
  sym::Answer prove(sym::Expr condition) const;
  bool holds(sym::Expr condition) const { return prove(condition) == sym::Answer::kYes; }
  sym::Expr simplify(sym::Expr e) const;
  sym::Facts known_facts() const;
  bool is_bound_in_run(sym::Expr e) const;   // contains a symbol that no input determines
  std::string display(ValueId value) const;  // for messages: 'name' or %7

  // The node of the model that new nodes are derived from.
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  const std::string& origin() const { return origin_; }
  void set_name(ValueId value, std::string name);  // keeps the first name

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }

 private:
  struct Open {
    Region region;
    size_t assumed;              // number of conditions in assumed_ when it was opened
    std::vector<ValueId> given;  // values whose elements were set inside the region
  };

  Region& current();
  ValueId new_value(Type type);
  std::optional<NodeId> find_shared(const Node& node) const;
  std::vector<ValueId> append(Node node, std::vector<Type> types, bool to_top);
  std::optional<ValueId> same_as(const Node& node, const Inferred& inferred) const;
  void skip_views(Node& node) const;
  void rotate_pieces(Node& node) const;
  void explain(Error& error, const Node& node) const;

  Graph& graph_;
  const ShapeTable& shapes_;
  Replaceable replaceable_;  // empty: no constant is a parameter
  std::vector<Open> open_;  // nested regions under construction
  // For the top region, then for each open region.
  std::vector<std::unordered_map<size_t, std::vector<NodeId>>> shared_;
  std::unordered_set<sym::Expr, sym::ExprHash> bound_in_run_;
  std::vector<sym::Expr> assumed_;
  std::string origin_;
  int next_symbol_ = 0;
};

}  // namespace stridec::graph

// The interface between the importer and the rows of its tables: a node's inputs as terms, its attributes,
// and sizes known at compile time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"
#include "compiler/ops/axes.h"
#include "compiler/ops/composite/strings.h"
#include "compiler/ops/name_size.h"

namespace stridec::onnx {

using graph::Builder;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;
using ops::Dims;
using ops::kLargestSize;
using ops::Term;

// The meaning of a name of the model: a tensor, a tensor of strings (ops/composite/strings.h), a sequence
// whose length is known at compile time, an optional known to be empty, a map (its keys and values), or a
// failure if the node that produces it could not be imported.
struct Slot {
  enum class Kind : uint8_t { kFailed, kTensor, kStrings, kSequence, kEmptyOptional, kMap, kInitializer };
  Kind kind = Kind::kFailed;
  ValueId tensor;                       // of strings: the index tensor
  ValueId pool;                         // of strings
  const Tensor* initializer = nullptr;  // becomes a constant on first read; rows never see this kind
  std::vector<Slot> items;              // of a sequence; of a map: its keys and its values

  Slot() = default;
  Slot(Term term) : kind(Kind::kTensor), tensor(term.id()) {}
  Slot(const ops::Strings& strings) : Slot(Slot::strings(strings.index, strings.pool)) {}
  Slot(const ops::TermOrStrings& x) : Slot(std::visit([](const auto& tensor) { return Slot(tensor); }, x)) {}
  static Slot strings(ValueId index, ValueId pool);
  static Slot sequence(std::vector<Slot> items);
  static Slot empty_optional();
  static Slot map(Slot keys, Slot values);
};

class Importer;
using Outputs = std::vector<Slot>;  // may be fewer than the node has; the rest are not computed

class Context {
 public:
  Context(Importer& importer, Builder& builder, const Node& node, std::vector<Slot> inputs)
      : b(builder), node(node), version(node.version), importer_(importer), inputs_(std::move(inputs)) {}

  Builder& b;
  const Node& node;
  const int version;

  // -- inputs
  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const { return node.has_input(i); }
  Term in(size_t i) const;  // throws Error if the input is missing or not a tensor
  std::optional<Term> optional(size_t i) const { return has(i) ? std::optional(in(i)) : std::nullopt; }
  const Slot& slot(size_t i) const;
  bool wants(size_t output) const { return node.has_output(output); }

  // -- attributes
  bool has_attribute(std::string_view name) const { return node.find(name) != nullptr; }
  int64_t integer(std::string_view name, int64_t otherwise) const;
  int64_t integer(std::string_view name) const;  // required
  double number(std::string_view name, double otherwise) const;
  std::string text(std::string_view name, std::string otherwise) const;
  Dims integers(std::string_view name, Dims otherwise = {}) const;
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  const Tensor* tensor(std::string_view name) const;
  const Graph& graph(std::string_view name) const;  // required
  DType dtype(int elem_type) const;                 // throws Error for strings, complex and unknown types
  DType dtype(std::string_view attribute, DType otherwise) const;

  // -- sizes
  // Negative values count from the end. Throws Error if out of range.
  int64_t axis(int64_t value, int64_t rank) const;
  Dims axes(Dims values, int64_t rank) const;  // the same for each; throws Error for duplicates
  // Input i as integers known at compile time; none if missing or unknown.
  std::optional<Dims> constant_integers(size_t i) const;
  // The same, but throws Error "unsupported", naming the input, if unknown.
  Dims integers_of(size_t i, std::string_view what) const;
  // The axes of an operator that has them as attribute in old versions and as input, possibly known only at
  // run time, in later ones. None if neither is given.
  std::optional<ops::Axes> axes_of(size_t input, const std::string& attribute, int64_t rank) const;
  // Input i as sizes: expressions, or symbols bound at run time.
  std::vector<sym::Expr> sizes_of(size_t i, const std::string& what, sym::Expr lower, sym::Expr upper) const;
  // The same for a scalar input.
  sym::Expr size_of(size_t i, const std::string& what, sym::Expr lower, sym::Expr upper) const;
  // The value of a float or integer known at compile time.
  std::optional<double> constant_number(size_t i) const;
  // The rank that the model declares for an output or that its readers require; none if unknown.
  std::optional<int64_t> declared_rank(size_t output) const;

  // -- construction
  Term constant(const Tensor& tensor, std::string name = {}) const;
  Term number(DType dtype, double value) const { return ops::number(b, dtype, value); }
  Importer& importer() const { return importer_; }

  [[noreturn]] void unsupported(std::string message, std::string help = {}) const;
  [[noreturn]] void does_not_fit(std::string message) const;

 private:
  Importer& importer_;
  std::vector<Slot> inputs_;
};

// The services of the importer that rows use.
class Importer {
 public:
  virtual ~Importer() = default;
  // Imports the subgraph's nodes at the builder's current position, with `parameters` as its inputs, and
  // returns its outputs. The caller opens and closes the region. Names of enclosing graphs are visible.
  virtual Outputs inline_graph(const Graph& graph, std::vector<Slot> parameters) = 0;
  // The value of a name with tensors in place of those of some names: copies the nodes in between to the
  // builder's current position.
  virtual Slot recompute(const std::string& name,
                         const std::vector<std::pair<std::string, Slot>>& instead) = 0;
  // The rank of a name in the graph being imported; none if the model does not determine it.
  virtual std::optional<int64_t> declared_rank(const std::string& name) = 0;
  // Imports a node in place of the current one (a function body, a rewritten operator).
  virtual Outputs import_as(Context& context, Node node, std::vector<Slot> inputs) = 0;
  virtual bool training_form() const = 0;  // ImportOptions
};

}  // namespace stridec::onnx

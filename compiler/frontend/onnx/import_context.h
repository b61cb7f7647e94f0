// What a row of the import tables sees of a node: its inputs as terms, its attributes, sizes known at compile
// time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"
#include "compiler/ops/axes.h"
#include "compiler/ops/name_size.h"

namespace stridec::onnx {

using graph::Builder;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;
using ops::Dims;
using ops::kLargestSize;
using ops::Term;

// What a name of the model stands for: a tensor, a tensor of strings (strings.h), a sequence whose length is known at compile time, an
// optional that is known to be empty, a map as its keys and its values, or nothing because the node that gives it could not be imported.
struct Slot {
  enum class Kind : uint8_t { kFailed, kTensor, kStrings, kSequence, kEmptyOptional, kMap, kInitializer };
  Kind kind = Kind::kFailed;
  ValueId tensor;                       // of strings: the index
  ValueId pool;                         // of strings
  const Tensor* initializer = nullptr;  // becomes a constant when it is first read; rows never see this kind
  std::vector<Slot> items;              // of a sequence; of a map: its keys and its values

  Slot() = default;
  Slot(Term term) : kind(Kind::kTensor), tensor(term.id()) {}
  static Slot strings(ValueId index, ValueId pool);
  static Slot sequence(std::vector<Slot> items);
  static Slot empty_optional();
  static Slot map(Slot keys, Slot values);
};

class Importer;
using Outputs = std::vector<Slot>;  // fewer than the node has: the others are not computed

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
  Term in(size_t i) const;  // throws Error for a missing input and for one that is no tensor
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
  int64_t axis(int64_t value, int64_t rank) const;  // from the end if negative; throws Error outside
  Dims axes(Dims values, int64_t rank) const;       // the same for each; throws Error for duplicates
  // Input i as integers known at compile time; none if missing or not known.
  std::optional<Dims> constant_integers(size_t i) const;
  // The same, required: throws Error "unsupported" naming the input.
  Dims integers_of(size_t i, std::string_view what) const;
  // The axes of an operator that has them as attribute in old versions and as input later, where the run may tell them;
  // none if neither is given.
  std::optional<ops::Axes> axes_of(size_t input, const std::string& attribute, int64_t rank) const;
  // Input i as sizes: expressions, or symbols bound during the run.
  std::vector<sym::Expr> sizes_of(size_t i, const std::string& what, sym::Expr lower, sym::Expr upper) const;
  // The same for an input that is one number.
  sym::Expr size_of(size_t i, const std::string& what, sym::Expr lower, sym::Expr upper) const;
  // A float or integer that is known at compile time.
  std::optional<double> constant_number(size_t i) const;
  // The rank that the model declares for an output, or that its readers need; none: the model does not say.
  std::optional<int64_t> declared_rank(size_t output) const;

  // -- making
  Term constant(const Tensor& tensor, std::string name = {}) const;
  Term number(DType dtype, double value) const { return ops::number(b, dtype, value); }
  Importer& importer() const { return importer_; }

  [[noreturn]] void unsupported(std::string message, std::string help = {}) const;
  [[noreturn]] void does_not_fit(std::string message) const;

 private:
  Importer& importer_;
  std::vector<Slot> inputs_;
};

// What rows need of the importer itself.
class Importer {
 public:
  virtual ~Importer() = default;
  // The subgraph's nodes where the builder stands (the caller opens and closes the region), with `parameters`
  // for its inputs; its outputs. The names of the enclosing graphs are visible in it.
  virtual Outputs inline_graph(const Graph& graph, std::vector<Slot> parameters) = 0;
  // What a name of the top graph would stand for with other values in the place of some names: the nodes between
  // are imported again, where the builder stands.
  virtual Slot import_again(const std::string& name,
                            const std::vector<std::pair<std::string, Slot>>& instead) = 0;
  // Of a name of the graph whose nodes are being imported; none where the model does not say.
  virtual std::optional<int64_t> declared_rank(const std::string& name) = 0;
  // One node of another form in place of the current one (a function body, a rewritten operator).
  virtual Outputs import_as(Context& context, Node node, std::vector<Slot> inputs) = 0;
};

}  // namespace stridec::onnx

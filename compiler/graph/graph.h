// The graph IR: a model as primitive operators over tensors with symbolic shapes.
//
//   graph mlp(batch)
//     %x : f32[batch, 784] = input "x"
//     %w : f32[784, 10] = constant "fc.weight"
//     %0 : f32[batch, 10] = dot_general %x %w {contract_a=[1], contract_b=[0]}
//     output "y" %0
//
// Arrays and strong ids, no pointers. Values and nodes are never removed from the arrays: a pass rebuilds the
// graph, or rewires uses and lets eliminate_dead_code drop dead nodes. Only the Builder (builder.h) creates
// nodes; it infers dtypes and shapes and records guards. Weights are not copied: a constant holds a pointer
// into the mapped file.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/base/ids.h"
#include "compiler/sym/expr.h"
#include "compiler/sym/facts.h"
#include "compiler/sym/guard.h"

namespace stridec::graph {

using ValueId = Id<struct GraphValueTag>;
using NodeId = Id<struct GraphNodeTag>;

enum class OpKind : uint8_t {
#define STRIDEC_OP(id, ...) id,
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP
};
inline constexpr int kOpCount = 0
#define STRIDEC_OP(id, ...) +1
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP
    ;
std::string_view name(OpKind kind);
std::optional<OpKind> parse_op(std::string_view name);

// More dims than tensors have in practice in any format. The limit keeps code that visits dims one by one
// fast.
constexpr size_t kMaxRank = 256;
using Shape = std::vector<sym::Expr>;
struct Type {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const Type&) const = default;
};
std::string to_string(const Type& type);  // f32[batch, 3, 224, 224]

// The address space of an x86-64 processor. The sum of the sizes of all tensors of a model fits in 64 bits.
constexpr int64_t kMostBytes = int64_t{1} << 47;

// Throws Error if a tensor has more than kMaxRank dims (kUnsupported), a negative dim, or more than
// kMostBytes bytes (kDoesNotFit). Dims of size 0 are left out of the product, because strides are computed
// from the other dims. Code that lays out tensors relies on this check.
void check_size(const Type& type);

// Bytes of a constant, row-major: mapped from the model file or owned.
struct Data {
  std::shared_ptr<const void> owner;
  const uint8_t* bytes = nullptr;
  size_t size = 0;
};
Data own(std::vector<uint8_t> bytes);

struct Value {
  std::string name;  // the model's name for it, if any
  Type type;
  NodeId producer;           // invalid: a graph input or a region's parameter
  int output = 0;            // of the producer
  std::optional<Data> data;  // only for constants; of a parameter: its initial value
  // A parameter: a constant whose bytes the user may replace after compilation. Nothing may depend on them.
  bool replaceable = false;
  // The bytes that compilation may depend on; null for parameters and for values that are not constants.
  const Data* known_data() const { return data && !replaceable ? &*data : nullptr; }
  // The contents of a small integer or bool tensor as expressions, row-major, if they are known: results of
  // Shape, Gather, Concat, and arithmetic on sizes. Never set on floats.
  std::optional<std::vector<sym::Expr>> elements;
};

using AttributeValue = std::variant<int64_t, double, std::string, DType, std::vector<int64_t>,
                                    std::vector<double>, sym::Expr, std::vector<sym::Expr>>;

// Sorted by name. For a missing attribute the plain getters fail and the `_or` getters return the default.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> items);
  void set(std::string name, AttributeValue value);
  const AttributeValue* find(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  int64_t integer_or(std::string_view name, int64_t otherwise) const;
  double number_or(std::string_view name, double otherwise) const;
  const std::string& text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string otherwise) const;
  DType dtype(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  sym::Expr expr(std::string_view name) const;                // converts an integer attribute to a constant
  std::vector<sym::Expr> exprs(std::string_view name) const;  // likewise
  const std::vector<std::pair<std::string, AttributeValue>>& items() const { return items_; }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<std::pair<std::string, AttributeValue>> items_;
};

// A block of nodes with parameters and results: the whole graph, a branch, or a loop body.
struct Region {
  std::vector<ValueId> parameters;
  std::vector<NodeId> nodes;  // in execution order
  std::vector<ValueId> results;
};

struct Node {
  OpKind kind;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;
  std::vector<Region> regions;  // of if and loop
  // The node of the model that it is derived from: "node 412 'head/nms' (NonMaxSuppression)".
  std::string origin;
};

// What people call the operation: its kind, or the routine of a call.
std::string_view name(const Node& node);

// A symbol of the model and the input dim that determines it; input < 0: bound during the run.
struct Symbol {
  sym::Expr var;
  int input = -1, dim = -1;
  int64_t multiple = 1;  // the input's dim is multiple * symbol
};

struct State {  // persists in the artifact from run to run
  std::string name;
  ValueId value;  // its contents at the start of a run: a parameter of `top`
  std::optional<Data> initial;
};

struct Graph {
  std::string name;
  std::deque<Node> nodes;  // deques, so that references stay valid while the graph grows
  std::deque<Value> values;
  Region top;  // parameters: inputs, then states
  std::vector<std::string> input_names, output_names;
  std::vector<State> states;
  std::vector<Symbol> symbols;
  sym::Facts facts;
  std::vector<sym::Guard> guards;

  Value& operator[](ValueId id) { return values[id.value]; }
  const Value& operator[](ValueId id) const { return values[id.value]; }
  Node& operator[](NodeId id) { return nodes[id.value]; }
  const Node& operator[](NodeId id) const { return nodes[id.value]; }
};

// Dead-code elimination: drops nodes that no result needs (state updates are needed) and renumbers.
void eliminate_dead_code(Graph& graph);

}  // namespace stridec::graph

#include "compiler/passes/byte_tables.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/loop/program.h"
#include "compiler/ops/term.h"
#include "compiler/passes/edit.h"

namespace stridec::passes {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;
using ops::Term;

// Cost of a table lookup on targets without an instruction for it, in the units of loop/scalar_op.def.
constexpr int kLookUp = 24;

bool is_byte(const graph::Type& type) { return is_integer(type.dtype) && info(type.dtype).bits == 8; }

bool is_one_number(const graph::Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](sym::Expr d) { return d.is_const(1); });
}

// The scalar operation of a pointwise node; nullopt for other nodes.
std::optional<loop::ScalarOp> scalar_op(OpKind kind) {
  return kind < OpKind::kConstant ? loop::parse_scalar_op(graph::name(kind)) : std::nullopt;
}

// A value as an elementwise function of a byte tensor.
struct Function {
  ValueId bytes;
  int cost = 0;
};

class Tables {
 public:
  explicit Tables(Graph& graph) : edit_(graph), graph_(graph) {}

  void run() {
    edit_.for_each_node([&](NodeId id) { visit(id); });
    edit_.finish();
  }

 private:
  void visit(NodeId id) {
    const Node& node = graph_[id];
    if (node.outputs.size() != 1 || edit_.is_constant(node.outputs[0])) return;
    const ValueId result = node.outputs[0];
    const auto function = composed(node);
    if (!function) return;
    functions_[result] = *function;
    if (!is_byte(graph_[result].type) || function->cost < kLookUp) return;
    edit_.insert_before(id, [&](Builder& b) {
      const ValueId table = values(b, result, function->bytes);
      const Term bytes(b, function->bytes);
      const Term index = bytes.dtype() == DType::kU8
                             ? bytes
                             : Term(b, b.add1(OpKind::kBitcast, {bytes.id()}, {{"to", DType::kU8}}));
      const Term found = gather(Term(b, table), index, 0);
      b.set_name(found, graph_[result].name);
      edit_.replace(result, found);
    });
  }

  // The node's result as such a function, if its operands are scalars and functions of the same byte tensor.
  std::optional<Function> composed(const Node& node) const {
    const auto op = scalar_op(node.kind);
    if (!op) return std::nullopt;
    Function out{{}, loop::info(*op).cost};
    for (ValueId input : node.inputs) {
      if (edit_.is_constant(input) && is_one_number(graph_[input].type.shape)) continue;
      const auto found = functions_.find(input);
      const Function operand = found != functions_.end() ? found->second : Function{input, 0};
      if (!is_byte(graph_[operand.bytes].type) || edit_.is_constant(operand.bytes)) return std::nullopt;
      if (out.bytes.valid() && out.bytes != operand.bytes) return std::nullopt;
      out.bytes = operand.bytes;
      out.cost += operand.cost;
    }
    if (!out.bytes.valid() || graph_[node.outputs[0]].type.shape != graph_[out.bytes].type.shape)
      return std::nullopt;
    return out;
  }

  // Evaluates the value for all 256 bytes.
  ValueId values(Builder& b, ValueId value, ValueId bytes) {
    std::map<ValueId, ValueId> made;
    return values(b, value, bytes, made);
  }

  ValueId values(Builder& b, ValueId value, ValueId bytes, std::map<ValueId, ValueId>& made) {
    if (const auto found = made.find(value); found != made.end()) return found->second;
    ValueId result;
    if (value == bytes) {
      std::vector<uint8_t> all(256);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
      result = b.constant("", {graph_[bytes].type.dtype, {256}}, graph::own(std::move(all)));
    } else if (edit_.is_constant(value)) {
      result = ops::reshape(Term(b, value), {});
    } else {
      const Node node = graph_[graph_[value].producer];
      std::vector<ValueId> inputs;
      for (ValueId input : node.inputs) inputs.push_back(values(b, input, bytes, made));
      result = b.add1(node.kind, std::move(inputs), node.attributes);
    }
    made[value] = result;
    return result;
  }

  Edit edit_;
  Graph& graph_;
  std::map<ValueId, Function> functions_;
};

}  // namespace

void make_byte_tables(Graph& graph) { Tables(graph).run(); }

}  // namespace stridec::passes

#include "compiler/train/lora.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "compiler/base/diagnostic.h"
#include "compiler/base/hash.h"
#include "compiler/base/number.h"
#include "compiler/base/pattern.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/train/edit.h"

namespace stridec::train {
namespace {

using namespace ops;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

// The readers of each value in the main graph, and the values that a region or an output reads.
struct Readers {
  std::vector<std::vector<NodeId>> nodes;
  std::vector<bool> elsewhere;

  explicit Readers(const Graph& graph) : nodes(graph.values.size()), elsewhere(graph.values.size()) {
    for (NodeId id : graph.top.nodes) {
      for (ValueId input : graph[id].inputs)
        if (nodes[input.value].empty() || nodes[input.value].back() != id) nodes[input.value].push_back(id);
      for (const graph::Region& region : graph[id].regions) mark(graph, region);
    }
    for (ValueId result : graph.top.results) elsewhere[result.value] = true;
  }

 private:
  void mark(const Graph& graph, const graph::Region& region) {
    for (ValueId result : region.results) elsewhere[result.value] = true;
    for (NodeId id : region.nodes) {
      for (ValueId input : graph[id].inputs) elsewhere[input.value] = true;
      for (const graph::Region& inner : graph[id].regions) mark(graph, inner);
    }
  }
};

// Of each value that is computed from constants alone, the largest of them.
struct Constants {
  std::vector<ValueId> largest;  // invalid: not from constants alone

  explicit Constants(const Graph& graph) : largest(graph.values.size()) {
    for (size_t i = 0; i < graph.values.size(); ++i)
      if (graph.values[i].data && !is_state(graph.values[i])) largest[i] = ValueId(static_cast<uint32_t>(i));
    for (NodeId id : graph.top.nodes) {
      const Node& node = graph[id];
      if (node.inputs.empty() || !node.regions.empty()) continue;
      ValueId most = largest[node.inputs[0].value];
      for (ValueId input : node.inputs) {
        const ValueId of = largest[input.value];
        if (!of.valid()) most = of;
        if (!most.valid()) break;
        if (bytes_of(graph, of) > bytes_of(graph, most)) most = of;
      }
      for (ValueId output : node.outputs) largest[output.value] = most;
    }
  }
  bool has(ValueId value) const { return largest[value.value].valid(); }

 private:
  static bool is_state(const graph::Value& value) {
    return !value.producer.valid();  // and its data are the initial value
  }
  static size_t bytes_of(const Graph& graph, ValueId id) { return graph[id].data->size; }
};

// Follows a weight, through its views or through its dequantisation, to the products that read it.
class Tracer {
 public:
  Tracer(const Graph& graph, const Readers& readers, const Constants& constants, Adapted& found)
      : graph_(graph), readers_(readers), constants_(constants), found_(found) {}

  // Why the weight cannot have an adapter; "": it can.
  std::string run() {
    visit(found_.weight, found_.weight, identity(found_.weight));
    if (why_.empty() && found_.products.empty()) why_ = "no product reads it";
    std::ranges::sort(found_.products, {}, &Adapted::Product::node);
    return why_;
  }

 private:
  Dims identity(ValueId value) const {
    Dims dims;
    for (size_t d = 0; d < graph_[value].type.shape.size(); ++d) dims.push_back(static_cast<int64_t>(d));
    return dims;
  }

  // `base`: the weight, or the last result of its dequantisation, of which the value is a view. `dims`: the
  // base's dims that the value's dims are.
  void visit(ValueId value, ValueId base, const Dims& dims) {
    if (readers_.elsewhere[value.value]) why_ = "a branch, a loop or an output of the model reads it";
    for (NodeId id : readers_.nodes[value.value]) {
      if (!why_.empty()) return;
      const Node& node = graph_[id];
      switch (node.kind) {
        case OpKind::kPermute: {
          Dims order;
          for (int64_t d : node.attributes.integers("order")) order.push_back(dims[static_cast<size_t>(d)]);
          visit(node.outputs[0], base, order);
          break;
        }
        case OpKind::kCast: visit(node.outputs[0], base, dims); break;
        case OpKind::kDotGeneral: product(id, value, base, dims); break;
        case OpKind::kConv: convolution(id, value, base, dims); break;
        default: dequantise(id);
      }
    }
  }

  void dequantise(NodeId id) {
    const Node& node = graph_[id];
    const ValueId made = node.outputs[0];
    if (!constants_.has(made) || node.outputs.size() != 1)
      why_ = cat(graph::name(node), " reads it (", node.origin, ")");
    else if (constants_.largest[made.value] != found_.weight)
      why_ = cat("it belongs to weight '", graph_[constants_.largest[made.value]].name, "'");
    else if (visited_.insert(made.value).second)
      visit(made, made, identity(made));
  }

  // Whether the base is the weight in floats or what integers are dequantised to, and that of the other
  // products. Integers that are only cast are scaled behind the product.
  bool is_matrix(ValueId base) {
    const DType dtype = graph_[base].type.dtype;
    const bool computed = base != found_.weight && is_float(graph_[found_.weight].type.dtype);
    if (!is_float(dtype) || byte_size(dtype) < 2 || computed) return false;
    if (!found_.matrix.valid()) found_.matrix = base;
    return found_.matrix == base;
  }

  void product(NodeId id, ValueId value, ValueId base, const Dims& dims) {
    const Node& node = graph_[id];
    const bool second = node.inputs[1] == value;
    const auto& contract = node.attributes.integers(second ? "contract_b" : "contract_a");
    if (node.inputs[0] == node.inputs[1] || !is_matrix(base) || dims.size() != 2 || contract.size() != 1)
      why_ = cat("it is not a matrix of a product (", node.origin, ")");
    else
      add(id, second, dims[static_cast<size_t>(contract[0])], dims[static_cast<size_t>(1 - contract[0])]);
  }

  void convolution(NodeId id, ValueId value, ValueId base, const Dims& dims) {
    const Node& node = graph_[id];
    if (node.inputs[1] != value || node.inputs[0] == value || !is_matrix(base) ||
        !std::ranges::is_sorted(dims))
      why_ = cat("it is not the window of a convolution (", node.origin, ")");
    else if (node.attributes.integer_or("groups", 1) != 1)
      why_ = cat("its convolution has groups (", node.origin, ")");
    else
      add(id, 1, 1, 0);
  }

  void add(NodeId id, size_t operand, int64_t in, int64_t out) {
    if (!found_.products.empty() && (found_.in != in || found_.out != out))
      why_ = cat("one product reads it as it is and another one transposed (", graph_[id].origin, ")");
    found_.in = in, found_.out = out;
    found_.products.push_back({id, operand});
  }

  const Graph& graph_;
  const Readers& readers_;
  const Constants& constants_;
  Adapted& found_;
  std::set<uint32_t> visited_;  // values of a dequantisation
  std::string why_;
};

void set_types(Adapted& adapted, const graph::Type& matrix, int64_t rank) {
  adapted.a = adapted.b = matrix;
  adapted.a.shape[0] = rank;
  adapted.a.shape[1] = matrix.shape[static_cast<size_t>(adapted.in)];
  std::ranges::fill(adapted.b.shape, 1);
  adapted.b.shape[0] = matrix.shape[static_cast<size_t>(adapted.out)];
  adapted.b.shape[1] = rank;
}

// Uniform in +-1 / sqrt(elements of a row), torch.nn.init.kaiming_uniform_ with a = sqrt(5).
graph::Data kaiming(const Adapted& adapted, const Lora& lora) {
  const int64_t rows = *sym::as_const(adapted.a.shape[0]), size = *sym::as_const(count(adapted.a.shape)),
                width = byte_size(adapted.a.dtype);
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(size / rows, 1)));
  std::vector<uint8_t> bytes(static_cast<size_t>(size * width));
  const uint64_t start = hash_bytes(adapted.name.data(), adapted.name.size()) ^ hash_mix(lora.seed + 1);
  for (int64_t i = 0; i < size; ++i) {
    const double unit = static_cast<double>(hash_mix(start + hash_mix(static_cast<uint64_t>(i))) >> 11);
    write_float(adapted.a.dtype, bound * (unit * 0x1p-52 - 1), bytes.data() + i * width);
  }
  return graph::own(std::move(bytes));
}

// (x A^T) B^T of one product, in the product's dims.
Term low_rank(graph::Builder& b, const Node& product, bool second, Term a, Term other) {
  if (product.kind == OpKind::kConv) {
    const Term x(b, product.inputs[0]);
    const size_t spatial = static_cast<size_t>(x.rank()) - 2;
    const Term h(b, b.add1(OpKind::kConv, {x, cast(a, x.dtype())}, product.attributes));
    graph::Attributes one = product.attributes;
    one.set("strides", Dims(spatial, 1));
    one.set("dilations", Dims(spatial, 1));
    one.set("before", Shape(spatial, 0));
    one.set("after", Shape(spatial, 0));
    return {b, b.add1(OpKind::kConv, {h, cast(other, h.dtype())}, one)};
  }
  const Term x(b, product.inputs[second ? 0 : 1]);
  const auto contract = product.attributes.integers(second ? "contract_a" : "contract_b");
  const Term h(b, dot_general(b, x, cast(a, x.dtype()), {{}, {}, contract, {1}}));  // x's other dims, rank
  const Term up = cast(other, h.dtype());
  return {b, second ? dot_general(b, h, up, {{}, {}, {h.rank() - 1}, {1}})
                    : dot_general(b, up, h, {{}, {}, {1}, {h.rank() - 1}})};
}

// y + scale * delta for all readers of the product y. The new nodes go right after it.
void add_beside(graph::Builder& b, NodeId product, const std::function<Term(const Node&)>& delta,
                double scale) {
  Graph& graph = b.graph();
  std::vector<NodeId>& order = graph.top.nodes;
  const size_t ordered = order.size(), known = graph.nodes.size();
  b.set_origin(graph[product].origin);
  const Term y(b, graph[product].outputs[0]);
  const Term sum = y + cast(delta(graph[product]), y.dtype()) * scale;
  redirect(graph, {{y.id(), sum.id()}});
  for (size_t i = known; i < graph.nodes.size(); ++i)
    for (ValueId& input : graph.nodes[i].inputs)
      if (input == sum.id()) input = y.id();
  const auto after = std::ranges::find(order, product) + 1;
  std::rotate(after, order.begin() + static_cast<std::ptrdiff_t>(ordered), order.end());
}

}  // namespace

std::vector<Adapted> find_adapted(const Graph& graph, const Lora& lora) {
  const Readers readers(graph);
  const Constants constants(graph);
  std::vector<Adapted> all;
  std::string left_out;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const graph::Value& value = graph.values[i];
    if (!value.data || value.name.empty() || !matches_any(lora.targets, value.name)) continue;
    Adapted found{.name = value.name,
                  .weight = ValueId(static_cast<uint32_t>(i)),
                  .matrix = {},
                  .products = {},
                  .a = {},
                  .b = {}};
    const std::string why = Tracer(graph, readers, constants, found).run();
    if (why.empty()) {
      set_types(found, graph[found.matrix].type, lora.rank);
      all.push_back(std::move(found));
      continue;
    }
    if (std::ranges::count(lora.targets, value.name) > 0)
      fail(ErrorKind::kUsage, "bad-lora",
           cat("--lora: weight '", value.name, "' cannot have an adapter: ", why),
           "leave it out: adapters are for matrices and windows that only products and convolutions read");
    left_out += cat(left_out.empty() ? "" : "; ", "'", value.name, "': ", why);
  }
  if (all.empty())
    fail(ErrorKind::kUsage, "bad-lora",
         cat("--lora: no weight that ", join(lora.targets, "|"), " matches can have an adapter"),
         left_out.empty() ? "'stridec inspect MODEL --stage=graph' lists weights by name" : left_out);
  return all;
}

std::pair<Weight, Weight> adapter_states(graph::Builder& b, const Adapted& adapted, const Lora& lora,
                                         const std::string& prefix) {
  const auto made = [&](const char* matrix, const graph::Type& type, std::optional<graph::Data> initial) {
    const std::string name = cat(adapted.name, matrix);
    return Weight{name, {b, b.state(cat(prefix, name), type, std::move(initial))}};
  };
  return {made(".lora_A", adapted.a, kaiming(adapted, lora)), made(".lora_B", adapted.b, std::nullopt)};
}

std::vector<std::pair<std::string, ValueId>> add_adapters(Graph& graph, const std::vector<Adapted>& all,
                                                          const Lora& lora, const std::string& prefix) {
  graph::Builder b(graph, shape_table());
  std::vector<std::pair<Adapted::Product, size_t>> products;
  std::vector<Weight> states;
  for (size_t i = 0; i < all.size(); ++i) {
    auto [a, other] = adapter_states(b, all[i], lora, prefix);
    states.push_back(std::move(a));
    states.push_back(std::move(other));
    for (const Adapted::Product& product : all[i].products) products.emplace_back(product, i);
  }
  // In execution order: a node that two adapters share, such as a constant, comes before both.
  const auto& order = graph.top.nodes;
  std::ranges::sort(products, {}, [&](const auto& each) {
    return std::ranges::find(order, each.first.node) - order.begin();
  });
  for (const auto& [product, i] : products)
    add_beside(
        b, product.node,
        [&, i = i, second = product.operand == 1](const Node& node) {
          return low_rank(b, node, second, states[2 * i].value, states[2 * i + 1].value);
        },
        lora.alpha / static_cast<double>(lora.rank));
  number_in_order(graph);
  std::vector<std::pair<std::string, ValueId>> out;
  for (const Weight& each : states) out.emplace_back(each.name, each.value.id());
  return out;
}

}  // namespace stridec::train

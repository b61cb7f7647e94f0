#include "compiler/frontend/onnx/declared_ranks.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace stridec::onnx {
namespace {

// Limit on the nodes searched: the deciding node is usually near, and hostile graphs have many readers.
constexpr int kMostNodes = 256;

template <size_t n>
bool is_one_of(const std::string& op, const std::string_view (&ops)[n]) {
  return std::find(std::begin(ops), std::end(ops), op) != std::end(ops);
}

// The first output has the rank of the first input.
constexpr std::string_view kKeepRank[] = {"Abs",         "BatchNormalization",
                                          "Cast",        "CastLike",
                                          "Ceil",        "Celu",
                                          "Clip",        "Cos",
                                          "CumSum",      "Dropout",
                                          "Elu",         "Erf",
                                          "Exp",         "Floor",
                                          "Gelu",        "HardSwish",
                                          "HardSigmoid", "Hardmax",
                                          "Identity",    "IsNaN",
                                          "LeakyRelu",   "Log",
                                          "LogSoftmax",  "LayerNormalization",
                                          "Mish",        "Neg",
                                          "Not",         "PRelu",
                                          "Pad",         "Reciprocal",
                                          "Relu",        "Round",
                                          "Selu",        "Sigmoid",
                                          "Sign",        "Sin",
                                          "Slice",       "Softmax",
                                          "Softplus",    "Softsign",
                                          "Split",       "Sqrt",
                                          "Swish",       "Tanh",
                                          "Tile",        "TopK"};
// The output has the rank of the larger operand.
constexpr std::string_view kBroadcast[] = {"Add",  "And",         "Div", "Equal", "Greater", "GreaterOrEqual",
                                           "Less", "LessOrEqual", "Max", "Min",   "Mod",     "Mul",
                                           "Or",   "Pow",         "Sub", "Sum",   "Where",   "Xor"};
constexpr std::string_view kReductions[] = {
    "ArgMax",    "ArgMin",     "ReduceL1",  "ReduceL2",   "ReduceLogSum", "ReduceLogSumExp",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",    "ReduceSumSquare"};
constexpr std::string_view kWindows[] = {"AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool"};
constexpr std::string_view kRecurrent[] = {"GRU", "LSTM", "RNN"};

// The number of axes of a node: from an attribute in old versions, from input 1 in later ones.
std::optional<int64_t> axes_count(const Node& n, const DeclaredRanks::Imported& imported) {
  if (const Attribute* axes = n.find("axes")) return static_cast<int64_t>(axes->ints.size());
  if (n.op_type == "ArgMax" || n.op_type == "ArgMin") return 1;
  if (!n.has_input(1)) return std::nullopt;
  const auto dims = imported(n.inputs[1]);
  if (!dims || dims->size() > 1) return std::nullopt;
  return dims->empty() ? 1 : (*dims)[0].value;
}

}  // namespace

void DeclaredRanks::index() {
  indexed_ = true;
  for (const auto* list : {&graph_.outputs, &graph_.value_infos})
    for (const ValueInfo& v : *list)
      if (v.type.kind == Type::Kind::kTensor && v.type.shape)
        declared_.emplace(v.name, static_cast<int64_t>(v.type.shape->size()));
  for (const Node& n : graph_.nodes)
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (!n.inputs[i].empty()) readers_[n.inputs[i]].emplace_back(&n, i);
}

std::optional<int64_t> DeclaredRanks::of(const std::string& name, const Imported& imported) {
  if (!indexed_) index();
  nodes_left_ = kMostNodes;
  return search(name, imported);
}

std::optional<int64_t> DeclaredRanks::search(const std::string& name, const Imported& imported) {
  if (const auto found = declared_.find(name); found != declared_.end()) return found->second;
  const auto readers = readers_.find(name);
  if (readers == readers_.end()) return std::nullopt;
  for (const Reader& reader : readers->second) {
    if (nodes_left_-- <= 0) break;
    if (const auto rank = needed_by(reader, imported)) return rank;
  }
  return std::nullopt;
}

// The rank that the node requires of input `at`, from the operator or from the rank of its first output.
std::optional<int64_t> DeclaredRanks::needed_by(const Reader& reader, const Imported& imported) {
  const auto& [node, at] = reader;
  const Node& n = *node;
  if (!n.domain.empty() || n.outputs.empty() || n.outputs[0].empty()) return std::nullopt;
  const auto result = [&] { return search(n.outputs[0], imported); };
  const auto plus = [](std::optional<int64_t> rank, int64_t more) {
    return rank && *rank + more >= 0 ? std::optional(*rank + more) : std::nullopt;
  };
  if (n.op_type == "Gemm" && at < 2) return 2;
  if (n.op_type == "MatMul" && at == 0) {
    const auto factor = imported(n.has_input(1) ? n.inputs[1] : "");
    return factor && factor->size() <= 2 ? plus(result(), 2 - static_cast<int64_t>(factor->size()))
                                         : std::nullopt;
  }
  if (n.op_type == "Concat") {
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (const auto dims = i == at ? std::nullopt : imported(n.inputs[i]))
        return static_cast<int64_t>(dims->size());
    return result();
  }
  if (is_one_of(n.op_type, kBroadcast)) {
    int64_t others = 0;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (i == at) continue;
      const auto dims =
          n.inputs[i] == n.inputs[at] ? std::optional(std::vector<Dim>()) : imported(n.inputs[i]);
      if (!dims) return std::nullopt;
      others = std::max(others, static_cast<int64_t>(dims->size()));
    }
    const auto rank = result();
    return rank && *rank > others ? rank : std::nullopt;
  }
  if (at != 0) return std::nullopt;
  if (is_one_of(n.op_type, kKeepRank)) return result();
  if (is_one_of(n.op_type, kRecurrent)) return 3;
  if (n.op_type == "Transpose") {
    const Attribute* order = n.find("perm");
    return order ? static_cast<int64_t>(order->ints.size()) : result();
  }
  if (is_one_of(n.op_type, kWindows)) {
    const Attribute* kernel = n.find("kernel_shape");
    return kernel ? static_cast<int64_t>(kernel->ints.size()) + 2 : result();
  }
  if (n.op_type != "Unsqueeze" && n.op_type != "Squeeze" && !is_one_of(n.op_type, kReductions))
    return std::nullopt;
  const Attribute* keep = n.find("keepdims");
  const bool reduces = n.op_type != "Unsqueeze" && n.op_type != "Squeeze";
  if (reduces && (!keep || keep->ints.empty() || keep->ints[0] != 0)) return result();
  const auto count = axes_count(n, imported);
  if (!count || *count == 0) return std::nullopt;
  return plus(result(), n.op_type == "Unsqueeze" ? -*count : *count);
}

}  // namespace stridec::onnx

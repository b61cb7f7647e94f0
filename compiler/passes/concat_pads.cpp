#include "compiler/passes/concat_pads.h"

#include <algorithm>
#include <optional>
#include <vector>

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
using sym::Expr;

struct Piece {
  ValueId value;  // without the padding
  size_t dim = 0;
  Expr before, after;
};

std::optional<Piece> piece_of(const Graph& graph, ValueId value) {
  const Node& node = graph[graph[value].producer];
  if (node.kind != OpKind::kPad || node.inputs.size() != 2) return std::nullopt;
  if (node.attributes.text_or("mode", "constant") != "constant") return std::nullopt;
  const graph::Value& fill = graph[node.inputs[1]];
  const graph::Data* const data = fill.known_data();
  if (!data || data->size != static_cast<size_t>(byte_size(fill.type.dtype)) ||
      std::any_of(data->bytes, data->bytes + data->size, [](uint8_t byte) { return byte != 0; }))
    return std::nullopt;
  const auto before = node.attributes.exprs("before"), after = node.attributes.exprs("after");
  std::optional<Piece> out;
  for (size_t d = 0; d < before.size(); ++d) {
    if (before[d].is_const(0) && after[d].is_const(0)) continue;
    if (out) return std::nullopt;
    out = Piece{node.inputs[0], d, before[d], after[d]};
  }
  return out;
}

class Joining {
 public:
  explicit Joining(Graph& graph) : edit_(graph) {}

  void run() {
    edit_.for_each_node([&](NodeId id) { node(id); });
    edit_.finish();
  }

 private:
  void node(NodeId id) {
    Graph& graph = edit_.graph();
    if (graph[id].kind != OpKind::kAdd) return;
    const ValueId sum = graph[id].outputs[0];
    // An addition that is part of a larger sum is handled with it.
    if (const auto user = edit_.only_user(sum); user && graph[*user].kind == OpKind::kAdd) return;
    std::vector<Piece> pieces;
    if (!collect(sum, pieces) || !join(sum, pieces)) return;
    edit_.insert_before(id, [&](Builder& b) {
      std::vector<ops::Term> parts;
      for (const Piece& piece : pieces) parts.emplace_back(b, piece.value);
      const ValueId whole = ops::concat(parts, static_cast<int64_t>(pieces[0].dim)).id();
      b.set_name(whole, graph[sum].name);
      edit_.replace(sum, whole);
    });
  }

  // The pieces of a sum; false if it adds up anything else.
  bool collect(ValueId value, std::vector<Piece>& pieces) {
    const Graph& graph = edit_.graph();
    const Node& node = graph[graph[value].producer];
    for (ValueId input : node.inputs) {
      if (!graph[input].producer.valid() || graph[input].type != graph[value].type || !edit_.only_user(input))
        return false;
      if (graph[graph[input].producer].kind == OpKind::kAdd) {
        if (!collect(input, pieces)) return false;
      } else if (auto piece = piece_of(graph, input)) {
        pieces.push_back(*piece);
      } else {
        return false;
      }
    }
    return true;
  }

  // Sorts the pieces; false if they do not fill the dim without gaps.
  bool join(ValueId sum, std::vector<Piece>& pieces) {
    const Graph& graph = edit_.graph();
    const size_t dim = pieces[0].dim;
    if (std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return piece.dim != dim; }))
      return false;
    const auto same = [&](Expr a, Expr b) { return sym::simplify(a - b, graph.facts).is_const(0); };
    Expr end = 0;
    for (size_t next = 0; next < pieces.size(); ++next) {
      const auto found = std::find_if(pieces.begin() + static_cast<std::ptrdiff_t>(next), pieces.end(),
                                      [&](const Piece& piece) { return same(piece.before, end); });
      if (found == pieces.end()) return false;
      std::iter_swap(pieces.begin() + static_cast<std::ptrdiff_t>(next), found);
      end += graph[pieces[next].value].type.shape[dim];
    }
    return same(end, graph[sum].type.shape[dim]);
  }

  Edit edit_;
};

}  // namespace

void concat_pads(Graph& graph) { Joining(graph).run(); }

}  // namespace stridec::passes

#include "compiler/train/narrow_states.h"

#include <algorithm>
#include <limits>

#include "compiler/base/number.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/train/edit.h"

namespace stridec::train {

using namespace ops;
using graph::OpKind;
using graph::ValueId;

namespace {

graph::Data narrowed(const graph::Data& wide) {
  constexpr size_t kFrom = 4, kTo = 2;
  std::vector<uint8_t> bytes(wide.size / kFrom * kTo);
  for (size_t i = 0; i < bytes.size() / kTo; ++i)
    write_float(DType::kBF16, read_float(DType::kF32, wide.bytes + i * kFrom), bytes.data() + i * kTo);
  return graph::own(std::move(bytes));
}

}  // namespace

// The upper 16 bits of an f32 are a bf16; a random number added to the lower ones carries into them.
Term round_at_random(Term x, int64_t seed) {
  graph::Builder& b = x.builder();
  constexpr double kLower = 0x1p16, kUpper = 0xffff0000;
  const Term noise = cast(random_uniform(b, x.shape(), DType::kF32, seed) * kLower, DType::kU32);
  const Term bits = apply(OpKind::kBitAnd, bitcast(x, DType::kU32) + noise, kUpper);
  const Term finite = less_equal(abs(x), std::numeric_limits<float>::max());
  return cast(select(finite, bitcast(bits, DType::kF32), x), DType::kBF16);
}

std::vector<ValueId> narrow_states(graph::Graph& graph, const std::vector<ValueId>& states) {
  std::vector<ValueId> out;
  for (graph::State& state : graph.states) {
    graph::Type& type = graph[state.value].type;
    if (type.dtype != DType::kF32 || std::ranges::count(states, state.value) == 0) continue;
    type.dtype = DType::kBF16;
    if (state.initial) state.initial = narrowed(*state.initial);
    out.push_back(state.value);
  }
  return out;
}

std::map<ValueId, ValueId> read_widened(graph::Graph& graph, const std::vector<ValueId>& states) {
  graph::Builder b(graph, shape_table());
  auto& order = graph.top.nodes;
  const auto ordered = static_cast<std::ptrdiff_t>(order.size());
  std::map<ValueId, ValueId> wide;
  for (ValueId state : states) wide[state] = cast(Term(b, state), DType::kF32);
  redirect(graph, wide);
  for (const auto& [state, value] : wide) graph[graph[value].producer].inputs = {state};
  std::rotate(order.begin(), order.begin() + ordered, order.end());
  number_in_order(graph);
  return wide;
}

}  // namespace stridec::train

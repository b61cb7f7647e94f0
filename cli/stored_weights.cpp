#include "cli/stored_weights.h"

#include <cmath>
#include <set>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/sym/text.h"

namespace stridec::cli {

StoredWeights stored_weights(const Compilation& made) {
  StoredWeights out;
  std::set<const uint8_t*> met;  // functions may share weights
  const auto add = [&](const uint8_t* bytes, size_t size) {
    if (bytes && met.insert(bytes).second) out.of_model += size;
  };
  for (const FunctionResult& function : made.functions) {
    for (const graph::Node& node : function.graph.nodes) {
      if (node.kind != graph::OpKind::kConstant) continue;
      if (const graph::Data* const data = function.graph[node.outputs[0]].known_data())
        add(data->bytes, data->size);
    }
    for (const auto* ids : {&function.loops.states, &function.loops.parameters})
      for (loop::BufferId id : *ids) add(function.loops[id].weight.bytes, function.loops[id].weight.size);
  }
  std::set<int64_t> places;  // the programs share one section
  for (const loop::Program* program : made.programs()) {
    out.stored = static_cast<uint64_t>(program->weight_bytes);
    for (const loop::Buffer& buffer : program->buffers) {
      if (buffer.storage != loop::Storage::kParameter || buffer.name.find(".winograd") == std::string::npos)
        continue;
      const auto place = sym::as_const(buffer.offset),
                 elements = sym::as_const(schedule::extent_in_elements(buffer));
      // Forms that are packed further have no place in the artifact.
      if (place && *place >= 0 && elements && places.insert(*place).second)
        out.winograd += static_cast<uint64_t>(*elements * byte_size(buffer.dtype));
    }
  }
  return out;
}

std::string growth_text(const StoredWeights& weights) {
  constexpr double kMuch = 1.5;
  constexpr uint64_t kLittle = 64 << 10;  // more bytes than these
  const auto of_model = static_cast<double>(weights.of_model), stored = static_cast<double>(weights.stored);
  if (stored <= kMuch * of_model || weights.stored <= weights.of_model + kLittle || weights.of_model == 0)
    return "";
  const double times = std::round(10 * stored / of_model) / 10;
  std::string text = cat(human_bytes(weights.stored), " of weights are stored, ", times,
                         " times the model's ", human_bytes(weights.of_model));
  if (weights.winograd > weights.stored / 4)
    text +=
        cat("; ", human_bytes(weights.winograd),
            " of them are for Winograd's algorithm: without it, -O winograd=false, the library is smaller "
            "and its 3x3 convolutions are slower");
  return text;
}

}  // namespace stridec::cli

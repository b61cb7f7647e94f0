#include "compiler/package/weight_shares.h"

#include <algorithm>
#include <map>

namespace stridec::package {

WeightShares weight_shares(const std::vector<Programs>& groups) {
  struct Place {
    uint64_t bytes = 0;
    size_t group = 0;  // the first that reads it
    bool shared = false;
  };
  std::map<int64_t, Place> places;  // by offset
  for (size_t g = 0; g < groups.size(); ++g)
    for (const loop::Program* program : groups[g])
      for (const loop::Buffer& buffer : program->buffers) {
        const bool stored =
            buffer.storage == loop::Storage::kParameter || buffer.storage == loop::Storage::kState;
        const auto offset = stored ? sym::as_const(buffer.offset) : std::nullopt;
        if (!offset || *offset < 0 || buffer.weight.size == 0) continue;
        const auto [found, fresh] = places.try_emplace(*offset, Place{.group = g});
        Place& place = found->second;
        place.bytes = std::max<uint64_t>(place.bytes, buffer.weight.size);
        place.shared = place.shared || place.group != g;
      }
  WeightShares out{.own = std::vector<uint64_t>(groups.size())};
  for (const auto& [offset, place] : places)
    (place.shared ? out.shared : out.own[place.group]) += place.bytes;
  return out;
}

}  // namespace stridec::package

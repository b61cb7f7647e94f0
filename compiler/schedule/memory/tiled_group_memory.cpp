#include "compiler/schedule/memory/tiled_group_memory.h"

#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

ArenaPlan own_memory(const loop::Program& program, const loop::TiledGroup& strips) {
  std::vector<ArenaItem> items;
  for (loop::BufferId id : strips.own) {
    const loop::Buffer& buffer = program[id];
    Lifetime life;
    for (int at = 0; at < static_cast<int>(strips.body.size()); ++at) {
      const Effects effects = effects_of(program, strips.body[static_cast<size_t>(at)]);
      if (touches(effects, id)) life.touch(at);
    }
    for (const loop::TiledGroup::Carried& each : strips.carried)
      if (each.buffer == id) life.touch(0), life.touch(static_cast<int>(strips.body.size()) - 1);
    const sym::Expr bytes = sym::simplify(
        sym::align_up(extent_in_elements(buffer) * byte_size(buffer.dtype), kAlignment), program.facts);
    items.push_back({life, bytes, {static_cast<int64_t>(typical(bytes, program.facts))}});
  }
  return plan_arena(items, program.facts);
}

}  // namespace stridec::schedule

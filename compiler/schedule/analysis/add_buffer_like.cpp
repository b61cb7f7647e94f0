#include "compiler/schedule/analysis/add_buffer_like.h"

namespace stridec::schedule {

loop::BufferId add_buffer_like(loop::Program& program, loop::BufferId of) {
  loop::Buffer copy = program[of];
  copy.name += "_again";
  if (copy.storage != loop::Storage::kLocal) copy.storage = loop::Storage::kArena;
  copy.ordinal = -1;
  copy.weight = {};
  return loop::add_buffer(program, std::move(copy));
}

}  // namespace stridec::schedule

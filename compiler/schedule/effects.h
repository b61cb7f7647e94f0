// What the steps of a program read and write.
#pragma once

#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Buffers that one step touches, each once, in order of appearance. Of control flow: what its condition
// reads, not what the steps inside it do.
struct Effects {
  std::vector<loop::BufferId> reads, writes;
};
Effects effects_of(const loop::Program& program, const loop::Step& step);
Effects effects_of(const loop::Nest& nest);
bool reads(const Effects& effects, loop::BufferId id);
bool writes(const Effects& effects, loop::BufferId id);

// Elements from the first to one past the last that the strides can reach: the memory a buffer takes.
sym::Expr extent_in_elements(const loop::Buffer& buffer);

}  // namespace stridec::schedule

// Walking a program: steps, what they read and write, the statements of a nest.
#pragma once

#include <functional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Buffers that one step touches, each once, in order of appearance; control flow gives what its condition
// reads.
struct Effects {
  std::vector<loop::BufferId> reads, writes;
};
Effects effects_of(const loop::Program& program, const loop::Step& step);
Effects effects_of(const loop::Nest& nest);

// Every step, outer before inner, in order.
void for_each_step(const loop::Steps& steps, const std::function<void(const loop::Step&)>& visit);

// Every statement, outer before inner, in order.
void for_each_stmt(const loop::Block& block, const std::function<void(const loop::Stmt&)>& visit);
void for_each_stmt(loop::Block& block, const std::function<void(loop::Stmt&)>& visit);

// Elements from the first to one past the last that the strides can reach: the memory a buffer takes.
sym::Expr extent_in_elements(const loop::Buffer& buffer);

}  // namespace stridec::schedule

// Tells what the steps of a program read and write.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

using loop::Effects;
using loop::effects_of;  // overload for a nest

// The effects of one step. For control flow: only what its condition reads, not the steps inside.
Effects effects_of(const loop::Program& program, const loop::Step& step);
// The nest that the step launches, or null if it launches none.
const loop::Nest* nest_at(const loop::Program& program, const loop::Steps& steps, int at);
// Whether the nest belongs to a tiled group, so that one thread runs it from start to end.
bool is_in_tiled_group(const loop::Program& program, const loop::Nest& nest);
bool reads(const Effects& effects, loop::BufferId id);
bool writes(const Effects& effects, loop::BufferId id);
bool touches(const Effects& effects, loop::BufferId id);  // either
// Whether neither step writes what the other one touches.
bool are_independent(const Effects& a, const Effects& b);

// Whether two nests that touch one buffer access disjoint elements of it: along some dim their ranges do not
// intersect, as for the pieces of a concatenation.
bool access_disjoint(const loop::Program& program, const loop::Nest& a, const loop::Nest& b,
                     loop::BufferId id);
// Whether the step may touch an element of the buffer that the nest touches. Both touch the buffer. For
// control flow: whether any step inside may.
bool may_access_same(const loop::Program& program, const loop::Nest& nest, const loop::Step& step,
                     loop::BufferId id);

// Buffers that steps other than launches use; these steps require them row-major.
std::set<loop::BufferId> fixed_buffers(const loop::Program& program);

// The buffer's dims, innermost first; nothing if its elements are not dense in memory.
std::optional<std::vector<size_t>> innermost_first(const loop::Buffer& buffer);

// The dims of an input, output or state in the memory order that the user declared, outermost first; empty:
// row-major, or without elements.
std::vector<size_t> declared_order(const loop::Buffer& buffer);

// Dense strides for `shape` with the dims in this order, outermost first.
std::vector<sym::Expr> dense_strides(const std::vector<sym::Expr>& shape, const std::vector<size_t>& order);
// The same, with the dims in the memory order of `like` at typical sizes.
std::vector<sym::Expr> strides_like(const loop::Buffer& like, const std::vector<sym::Expr>& shape,
                                    const sym::Facts& facts);

// Adds a buffer for a part of `of` with this shape, its dims in the memory order of `of`.
loop::BufferId add_part(loop::Program& program, loop::BufferId of, const std::vector<sym::Expr>& shape);

// The memory that a buffer spans, in elements: from its first to one past the last element that the strides
// reach.
sym::Expr extent_in_elements(const loop::Buffer& buffer);

}  // namespace stridec::schedule

// What the steps of a program read and write.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "compiler/loop/analysis.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

using loop::Effects;
using loop::effects_of;  // of a nest

// Of one step; of control flow: what its condition reads, not what the steps inside it do.
Effects effects_of(const loop::Program& program, const loop::Step& step);
// The nest that the step launches; null: it launches none.
const loop::Nest* nest_at(const loop::Program& program, const loop::Steps& steps, int at);
// It is part of strips: one thread runs it from end to end.
bool is_in_tiled_group(const loop::Program& program, const loop::Nest& nest);
bool reads(const Effects& effects, loop::BufferId id);
bool writes(const Effects& effects, loop::BufferId id);
bool touches(const Effects& effects, loop::BufferId id);  // either

// Where both nests touch the buffer, none of them touches an element of the other's: along some dim their ranges have nothing
// in common, as those of the parts of a concatenation.
bool touch_apart(const loop::Program& program, const loop::Nest& a, const loop::Nest& b, loop::BufferId id);
// Whether the step, which touches the buffer as the nest does, may touch an element of it that the nest touches; control flow:
// any of the steps inside it.
bool share_elements(const loop::Program& program, const loop::Nest& nest, const loop::Step& step,
                    loop::BufferId id);

// What steps other than launches use: they expect it row-major.
std::set<loop::BufferId> fixed_buffers(const loop::Program& program);

// The buffer's dims, innermost first; nothing where its elements do not lie side by side.
std::optional<std::vector<size_t>> inside_out(const loop::Buffer& buffer);

// Dense strides for this shape, its dims in the order that they have in memory there, at typical sizes.
std::vector<sym::Expr> strides_like(const loop::Buffer& like, const std::vector<sym::Expr>& shape,
                                    const sym::Facts& facts);

// Adds one for a part of this shape, its dims in the order that they have in memory there.
loop::BufferId add_part(loop::Program& program, loop::BufferId of, const std::vector<sym::Expr>& shape);

// Elements from the first to one past the last that the strides can reach: the memory a buffer takes.
sym::Expr extent_in_elements(const loop::Buffer& buffer);

}  // namespace stridec::schedule

// Memory planning: where each scratch buffer of a run lives.
#pragma once

#include <optional>
#include <span>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Gives every kArena buffer a byte offset (a multiple of 64) in one arena and sets Program::arena_bytes.
// Buffers that are never alive together share memory.
//
// Sizes are symbolic: the plan is right for every shape, and tight for shapes near the one that it was chosen by
// (each symbol at kTypicalSize, or the end of its range that is nearest; arena.h says how). A nest may write over an operand that
// dies with it, element by element. Sizes that depend on symbols bound during the run are planned at their upper
// bound; where there is none, or reserving it would take more than kMostReserved, the buffer gets offset -1:
// memory of its own, allocated during the run once its size is known.
//
// kSums: also nests with reductions write over what they read behind them, such as the residual that follows a matrix
// product. That is for code that computes each element once; where tiles overlap at the edges it would be read again.
enum class InPlace { kPointwise, kSums };
void plan_memory(loop::Program& program, InPlace in_place = InPlace::kPointwise);

// Gives every weight that a run reads a byte offset (a multiple of 64) in the artifact's weights, in the
// order of first use, and sets Program::weight_bytes. The programs are variants of one model and share one
// section: weights with the same bytes get the same place. Weights that only prepack nests read keep offset
// -1.
void plan_weights(std::span<loop::Program* const> variants);

// The bytes to reserve before the run for what takes `bytes`: symbols that the run itself binds are at their upper bounds.
// Nothing where they have none that is known before the run, or where that would be more than kMostReserved.
std::optional<sym::Expr> reserved_before_run(const loop::Program& program, sym::Expr bytes);

inline constexpr int64_t kTypicalSize = 128;
inline constexpr int64_t kMostReserved = int64_t{64} << 20;

}  // namespace stridec::schedule

// Memory planning: assigns a place to each scratch buffer of a run.
#pragma once

#include <optional>
#include <span>
#include <variant>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {

// Gives every kArena buffer a byte offset (a multiple of 64) in one arena and sets Program::arena_bytes.
// Buffers that are never live together share memory.
//
// Sizes are symbolic: the plan is correct for every shape, and tight for shapes near those it was chosen by
// (each symbol at four sizes from small to large, as its range allows; see arena.h). A nest may write in
// place over an operand that dies with it, element by element. Sizes that depend on symbols bound during the
// run are planned at their upper bound. If there is none, or reserving it would exceed kMostReserved, the
// buffer gets offset -1: its own memory, allocated during the run once its size is known.
//
// Private memory of a launch's threads is planned as a buffer that is live during this launch: `stride()`
// bytes for each of loop::threads_of. The backend provides the size.
//
// kSums: nests with reductions also write in place over operands they read after the reduction, such as the
// residual after a GEMM. This requires code that computes each element once; tiles that overlap at the edges
// would read the operand again.
enum class InPlace { kPointwise, kSums };
using LaunchKey = std::variant<loop::NestId, const loop::TiledGroup*, const loop::Call*>;
struct Scratch {
  LaunchKey launch;
  sym::Expr bytes;             // that a thread needs, as the kernel's plan says
  sym::Expr reserved = bytes;  // before the run: at least `bytes`, whatever symbols the run binds
  sym::Expr offset = -1;       // in the arena, of the first thread's part; -1: allocated during the run
  sym::Expr stride() const { return sym::align_up(reserved, 64); }
};
void plan_memory(loop::Program& program, InPlace in_place = InPlace::kPointwise,
                 std::span<Scratch> scratch = {});

// The buffer that a step running `nests`, in which it dies, may overwrite with `output` in the same layout.
std::optional<loop::BufferId> in_place_operand(const loop::Program& program,
                                               std::span<const loop::Nest* const> nests,
                                               loop::BufferId output, InPlace in_place);

inline constexpr int64_t kMostReserved = int64_t{64} << 20;

}  // namespace stridec::schedule

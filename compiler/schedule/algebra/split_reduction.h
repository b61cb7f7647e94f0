// Splits a reduction in two steps: partial results over some of the dims, then their combination.
//
//   for g<G: s[g] = f(reduce sum over r<R, k<K of x[g,r,k])
//
//   for g<G, r<R: part[r,g] = reduce sum over k<K of x[g,r,k]         split_reduction %r
//   for g<G:      s[g] = f(reduce sum over r<R of part[r,g])
//
//   for r<R, c<G*K: part[r,c] = x[c//K, r, mod(c,K)]                  split_reduction %r %k join %g
//   for g<G:        s[g] = f(reduce sum over r<R, k<K of part[r, g*K + k])
//
//   for t<ceil(R/4096): part[t] = reduce over r<4096 of x[4096*t + r]     split_reduction %r by 4096
//
// A sum of squared deviations from the mean that this sum yields is split together with it, in one pass over
// x (variance.h).
//
// More points run in parallel, and a dim that is innermost in memory can become the vectorised dim. The
// partial results do not depend on the number of threads.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

struct ReductionSplit {
  // Dims of one reduction that the partial results keep.
  std::vector<sym::Expr> keep;
  // If not 0, each partial result covers this many points of the only dim of `keep`.
  int64_t strip = 0;
  // A parallel dim that is merged with the last dim of `keep`, which is the inner of the two.
  std::optional<sym::Expr> join;
};
loop::Directive to_directive(const ReductionSplit& split);
// Throws Error kMalformed, code "bad-schedule".
ReductionSplit to_reduction_split(const loop::Directive& directive);

// Returns the nests that replace `nest`, in order: the part before the reduction if any of it remains, the
// partial results, and the rest. Adds the new buffers to the program. Returns none and sets `reason` if the
// split is impossible.
std::vector<loop::Nest> split_reduction(loop::Program& program, const loop::Nest& nest,
                                        const ReductionSplit& split, std::string* reason);

// Splits the reductions where it pays: long reductions of few points, and reductions over a few neighbours in
// memory that do not fill the vector lanes. kThreads (CPU): threads are few and a second nest costs little,
// so the reductions of a single image or sentence are split too. kBlocks (GPU): typical sizes decide. A
// reduction that is its nest's only loop stays whole there; the number of blocks that share it is chosen at
// run time from its size.
enum class Sharing { kThreads, kBlocks };
void split_reductions(loop::Program& program, Sharing sharing, std::vector<Decision>* decisions = nullptr);

// For GPUs: splits the depth of GEMMs of two activations with few results, along its outermost dim. Runs
// after narrow_storage, since partial sums stay f32.
void split_deep_gemms(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

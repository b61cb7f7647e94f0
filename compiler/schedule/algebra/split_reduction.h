// Reductions in two steps: partial results over some of the dims, then their combination.
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
// A sum of squared deviations from the mean that this sum gives is taken apart with it, in one go through x (variance.h).
//
// More points run in parallel, and a dim that lies innermost in memory comes to run along the lanes. The partial results
// are the same however many threads there are.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

struct ReductionSplit {
  std::vector<sym::Expr> keep;  // dims of one reduction: those of the partial results
  int64_t strip = 0;            // not 0: partial results of this many points of the only dim of `keep`
  std::optional<sym::Expr>
      join;  // a parallel dim that becomes one with the last dim of `keep`, which is inside
};
loop::Directive to_directive(const ReductionSplit& split);
// Throws Error kMalformed, code "bad-schedule".
ReductionSplit to_reduction_split(const loop::Directive& directive);

// The nests that together do what `nest` does, in order: what comes before the reduction, if anything is left of it,
// the partial results, and the rest. New buffers are added to the program. None, with the reason, where that cannot be
// done.
std::vector<loop::Nest> split_reduction(loop::Program& program, const loop::Nest& nest,
                                        const ReductionSplit& split, std::string* reason);

// Splits what is worth it: long reductions of few points, and those over a few neighbours in memory, which lanes could
// not fill. Threads of a CPU are few and a second nest costs little: one image or sentence at a time is the case that wants
// its reductions shared. On a GPU typical sizes decide, and a reduction that is its nest's only loop stays: as many blocks
// share it as its sizes ask for when it runs.
enum class Sharing { kThreads, kBlocks };
void split_reductions(loop::Program& program, Sharing sharing, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

// The directives of a Schedule that the general loop emitters obey, and what they do to a nest. Those marked [GPU] are for a
// GPU alone, those marked [CPU] for a CPU alone; numbers are at least 1. What a CPU's schedule may say, also one written
// by hand, applies.h decides; a GPU's has to be one of candidates.h.
//
//   reorder %i %j ...  the parallel dims in this order; legal where no point updates what another one touches
//   merge %i %j ...    neighbouring parallel dims become one, named after the last; legal where no access can tell
//   split %i N         %i becomes %i.o of extent/N and %i.i of N, next to each other; N divides the extent
//   tasks %i %j ...    [CPU] parallel dims whose points are handed out to threads, outermost first; the others are loops
//                      within a task. Without any the nest is one task.
//   chunk N            [CPU] the last of these dims is handed out N points at a time; at most 2^40
//   grain N            [CPU] steps of loops (loop::Cost) that are worth another thread (1); at most 2^40
//   team N             [GPU] N threads share a point and deal out the loops in it; 1: a thread a point, which
//                      says nothing to a CPU
//   columns %j         [GPU] with team N: the team's points are neighbours along %j, and its threads a grid of columns and
//                      rows
//   tile %k N          [CPU] the loops of a task pass over N neighbours of %k before they go on to the next N (several of
//                      these: blocks, the first dim's outermost), so that what they touch again is still in a cache; at
//                      most 2^40
//   tile %a %b         [GPU] a block does a tile of neighbouring points; what is contiguous along %b is loaded so, and
//                      turned in shared memory to run along %a
//   points %c N        N neighbouring points along %c are done together, where they share what they load (unroll and jam): on
//                      a CPU by the innermost loop of a task, at most 16, and along one dim; on a GPU by a thread, first by
//                      vectors, then (a second and a third one of these) along other dims
//   below N            [GPU] points are fewer for runs with less than N of the nest's points in all: as `fewer` says
//   fewer %c N         [GPU] with below: what `points` says otherwise
//   order %k %l ...    [CPU] the loops within a task, outermost first (as written)
//   vectorize %k W     [CPU] lanes along %k: a parallel dim (then the innermost loop of a task), or a dim of a for or reduce;
//                      2, 4, 8, 16, 32 or 64
//   single %k          [CPU] with lanes along %k: what is left behind whole vectors runs point by point, not as a masked
//                      vector
//   accumulators %k N  [CPU] vectors of partial results of a reduce with lanes along %k; a power of two, at most 64
//   transpose %k N     [CPU] with lanes along another dim: loads whose unit stride is %k go through N x N blocks in
//                      registers; N is the number of these lanes
//
// reorder, merge and split come first and are carried out on a copy of the nest; the rest names dims of the result.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

struct LoopPlan {
  struct Split {
    sym::Expr dim;
    int64_t factor;
  };
  using Dims = std::vector<sym::Expr>;
  template <class T>
  using PerDim = std::map<sym::Expr, T, sym::ExprLess>;

  Dims reorder;
  // Merges and splits, in order; exactly one of the two is set.
  struct Reshape {
    Dims merge;
    std::optional<Split> split;
  };
  std::vector<Reshape> reshapes;
  Dims tasks;
  int64_t chunk = 1;
  int64_t grain = 1;
  int team = 1;
  std::optional<sym::Expr> columns;
  std::optional<std::pair<sym::Expr, sym::Expr>> tile;
  std::vector<Split> blocks;  // tile on a CPU
  std::vector<Split> points;
  int64_t few = 0;  // below: `few_points` for runs with fewer points than this
  std::vector<Split> few_points;
  Dims order;
  PerDim<int> width;
  std::optional<sym::Expr> single;
  PerDim<int> accumulators;
  std::optional<std::pair<sym::Expr, int>> transpose;
};

// Throws Error kMalformed, code "bad-schedule", for a directive that is not one of these.
LoopPlan parse_plan(const loop::Schedule& schedule);
std::vector<loop::Directive> directives(const LoopPlan& plan);

// Whether the neighbouring parallel dims a and b (b the faster one) may become one: every access moves by the
// extent of b times as much along a as along b, and nothing else looks at them. `reason`: why not.
bool can_merge(const loop::Program& program, const loop::Nest& nest, sym::Expr a, sym::Expr b,
               std::string* reason = nullptr);
// The nest with these dims merged, each list into its last.
loop::Nest with_merged(const loop::Program& program, loop::Nest nest,
                       const std::vector<LoopPlan::Dims>& merges);
// The nest with neighbouring dims of each loop at the top of its body merged where every access walks through them in step.
loop::Nest with_merged_loops(const loop::Program& program, loop::Nest nest);
// The nest after the plan's merges and splits. Dims of extent 1 become the constant 0.
loop::Nest reshaped(const loop::Program& program, const loop::Nest& nest, const LoopPlan& plan);

}  // namespace stridec::schedule

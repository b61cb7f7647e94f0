// Defines the directives of a Schedule that the general loop emitters obey, and applies them to a nest. [GPU]
// and [CPU] mark directives of one target; numbers are at least 1. applies.h decides which directives a CPU
// schedule may have, hand-written ones included. A GPU schedule has to be one of candidates.h.
//
//   reorder %i %j ...  reorders the parallel dims; legal where no point updates what another one touches
//   merge %i %j ...    merges neighbouring parallel dims into one, named after the last; legal where no
//                      access can tell the difference
//   split %i N         splits %i into %i.o of extent/N and the adjacent %i.i of N; N divides the extent
//   tasks %i %j ...    [CPU] parallel dims whose points are distributed over threads, outermost first; the
//                      other dims are loops within a task. Without this directive the nest is one task.
//   chunk N            [CPU] the last of these dims is distributed N points at a time; at most 2^40
//   grain N            [CPU] loop iterations (loop::Cost) that justify another thread; 1 by default, at most
//                      2^40
//   team N             [GPU] N threads share a point and split the loops in it; 1: one thread per point,
//                      which has no effect on a CPU
//   columns %j         [GPU] with team N: the thread group's points are neighbours along %j, and its threads
//                      form a grid of columns and rows
//   tile %k N          [CPU] cache blocking: the loops of a task cover N neighbours of %k before the next N,
//                      so that reused data is still in cache. Several of these nest, the first one outermost;
//                      at most 2^40
//   tile %a %b         [GPU] a thread block computes a tile of neighbouring points; data contiguous along %b
//                      is loaded along %b and transposed in shared memory to run along %a
//   points %c N        N neighbouring points along %c are computed together and share loads (unroll and jam).
//                      On a CPU by the innermost loop of a task, at most 16, along one dim; on a GPU by a
//                      thread, first as vectors, then (a second and a third one of these) along other dims
//   below N            [GPU] runs with fewer than N points of the nest in total use `fewer`
//   fewer %c N         [GPU] with below: replaces `points` for such runs
//   order %k %l ...    [CPU] the loops within a task, outermost first (default: as written)
//   vectorize %k W     [CPU] W vector lanes along %k: a parallel dim (then the innermost loop of a task) or a
//                      dim of a for or reduce; W is 2, 4, 8, 16, 32 or 64
//   single %k          [CPU] with lanes along %k: the remainder after whole vectors runs as a scalar loop,
//                      not as a masked vector
//   accumulators %k N  [CPU] N vector accumulators of a reduce with lanes along %k; a power of two, at most
//                      64
//   transpose %k N     [CPU] with lanes along another dim: loads with unit stride along %k are transposed in
//                      N x N register blocks; N is the number of these lanes
//
// reorder, merge and split come first and are applied to a copy of the nest; the rest names dims of the
// result.
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
  // Merges and splits, in order; each entry has exactly one of the two.
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
  std::vector<Split> blocks;  // `tile %k N` on a CPU
  std::vector<Split> points;
  int64_t few = 0;  // `below`: runs with fewer points use `few_points`
  std::vector<Split> few_points;
  Dims order;
  PerDim<int> width;
  std::optional<sym::Expr> single;
  PerDim<int> accumulators;
  std::optional<std::pair<sym::Expr, int>> transpose;
};

// Throws Error kMalformed, code "bad-schedule", for an unknown or malformed directive.
LoopPlan parse_plan(const loop::Schedule& schedule);
std::vector<loop::Directive> directives(const LoopPlan& plan);

// Whether the neighbouring parallel dims a and b (b the faster one) may become one: the address stride of
// every access along a is b's extent times its stride along b, and nothing else uses either dim. `reason`:
// why not.
bool can_merge(const loop::Program& program, const loop::Nest& nest, sym::Expr a, sym::Expr b,
               std::string* reason = nullptr);
// Returns the nest with these dims merged, each list into its last dim.
loop::Nest with_merged(const loop::Program& program, loop::Nest nest,
                       const std::vector<LoopPlan::Dims>& merges);
// Returns the nest with neighbouring dims of each top-level loop of its body merged where the strides of
// every access allow it, as for can_merge().
loop::Nest with_merged_loops(const loop::Program& program, loop::Nest nest);
// Returns the nest after the plan's merges and splits. Dims of extent 1 become the constant 0.
loop::Nest reshaped(const loop::Program& program, const loop::Nest& nest, const LoopPlan& plan);

}  // namespace stridec::schedule

// Fusion: fewer nests and less memory traffic, by a few rules on the loop IR.
//
// inline (producer into load)      for i: t[i] = f(x[i])          ->  for i: y[i] = g(f(x[i]))
//                                  for i: y[i] = g(t[i])
//   The producer is pointwise, and recomputing it is cheaper than storing and loading its result.
//
// merge (nests over common dims)   for r: m[r] = reduce k x[r,k]  ->  for r: m = reduce k x[r,k]
//                                  for r, k: y[r,k] = x[r,k]-m[r]            for k: y[r,k] = x[r,k] - m
//   Both nests share their leading dims; the remaining dims of each become an inner loop. Softmax, layer norm
//   and their neighbours become one nest over the rows. A pointwise consumer of a contraction becomes its
//   epilogue. Nests over one domain become one nest with several outputs.
//
// split concatenations             c = concat(-x[2:], x[:2])      ->  y[k] = f(k < 3 ? -x[k + 2] : x[k - 3])
//   Pieces that are moved or cheap to recompute from buffers that stay in memory anyway are inlined: their
//   readers select between them.
//
// A buffer that only one nest still writes and reads afterwards becomes a scalar, or a row local to the point
// (localise).
//
// Contractions only ever gain pointwise statements on their own domain, so that a template still fits
// (kernels require a `reduce sum` of a product over its own dims).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

struct FusionOptions {
  std::vector<Decision>* decisions = nullptr;
  // Consumers of a contraction's result may join its kernel (-O epilogue_fusion).
  bool epilogues = true;
};

// Applies the rules until nothing changes. Preserves the meaning of the program. Ids of nests and buffers
// change, because unused ones are removed.
void fuse(loop::Program& program, const FusionOptions& options = {});
// For GPUs, where a thread group processes neighbouring columns together. Also merges nests whose
// intermediate is a column, and a group normalisation with the statistics of its groups. (On a CPU,
// processing channels separately is faster than reading a whole group while it is in cache.)
void fuse_columns(loop::Program& program, const FusionOptions& options = {});

// Forms chains (kernels/chain.h) of contractions connected by rows, for targets that have a template for
// them:
//
//   for r, n: s[r,n] = reduce k a[r,k] * b[n,k]        for r: for n: s[n] = reduce k a[r,k] * b[n,k]
//   for r:    t[r,:] = softmax of s[r,:]           ->         softmax of s in place
//   for r, j: o[r,j] = reduce n t[r,n] * c[n,j]               for j: o[r,j] = reduce n s[n] * c[n,j]
//
// The intermediates stay in cache, a block of rows at a time, provided that they have no other reader and the
// rows share the other factors. Pointwise producers of factors are fused as well, because a kernel copies its
// factors anyway.
struct ChainRule {
  // Whether the target has a kernel for the chain `nest` in `program`, which is a copy. May change the
  // strides of arena buffers that the chain reads. If not set, everything that kernels/chain.h decomposes is
  // accepted.
  std::function<bool(loop::Program& program, const loop::Nest& nest, std::string* reason)> fits;
  bool absorbs = true;  // fuse pointwise producers of factors
  bool single = false;  // accept rows of a single point (`single` of match_chain())
};
void chain(loop::Program& program, const ChainRule& rule, std::vector<Decision>* decisions = nullptr);
void chain(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

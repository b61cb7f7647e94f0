// Fusion: fewer nests, less memory traffic, by two rules on the loop IR.
//
// inline (producer into load)      for i: t[i] = f(x[i])          ->  for i: y[i] = g(f(x[i]))
//                                  for i: y[i] = g(t[i])
//   The producer is pointwise, and what is computed twice is cheaper than what is no longer stored and
//   loaded.
//
// merge (nests over common dims)   for r: m[r] = reduce k x[r,k]  ->  for r: m = reduce k x[r,k]
//                                  for r, k: y[r,k] = x[r,k]-m[r]            for k: y[r,k] = x[r,k] - m
//   Both agree on the dims in front; the rest of each becomes an inner loop. Softmax, layer norm and their
//   neighbours become one nest a row; a pointwise consumer of a contraction becomes its epilogue; nests that
//   share a domain become one nest with several outputs.
//
// take apart                        c = concat(-x[2:], x[:2])      ->  y[k] = f(k < 3 ? -x[k + 2] : x[k - 3])
//   Pieces that are no more than moved or cheap to compute, of what is needed in memory anyway, are chosen between
//   where they are read, and inlined.
//
// What one nest alone still writes and reads afterwards becomes a scalar, or a row kept local to the point
// (localise).
//
// A contraction (kernels ask for `reduce sum` of a product over its own dims) is only ever given pointwise
// statements on its own domain, so that a template still fits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

struct FusionOptions {
  std::vector<Decision>* decisions = nullptr;
  bool epilogues = true;  // what is made of a contraction's result may join its kernel (-O epilogue_fusion)
};

// Runs the rules until nothing changes. The meaning of the program stays; ids of nests and
// buffers change, for what nothing uses any more goes.
void fuse(loop::Program& program, const FusionOptions& options = {});
// For GPUs, whose teams do neighbouring columns side by side: merges as well where what passes would be a column, and what
// normalises groups of channels with what groups come to (on a CPU channels by themselves are faster than a group's read
// while it is in the cache).
void fuse_columns(loop::Program& program, const FusionOptions& options = {});

// Makes chains (kernels/chain.h) of contractions whose rows pass from one to the other, for targets that have a
// template for them:
//
//   for r, n: s[r,n] = reduce k a[r,k] * b[n,k]        for r: for n: s[n] = reduce k a[r,k] * b[n,k]
//   for r:    t[r,:] = softmax of s[r,:]           ->         softmax of s in place
//   for r, j: o[r,j] = reduce n t[r,n] * c[n,j]               for j: o[r,j] = reduce n s[n] * c[n,j]
//
// What passes stays in cache, a block of rows at a time, where it is read by nobody else and the rows share the other
// factors. Pointwise producers of factors join them: factors are copied for a kernel anyway.
struct ChainRule {
  // Whether the target has a kernel for the chain that `nest` would be in `program`, a copy; may give arena buffers
  // that it reads other strides. Empty: whatever kernels/chain.h takes apart.
  std::function<bool(loop::Program& program, const loop::Nest& nest, std::string* reason)> fits;
  bool absorbs = true;  // pointwise producers of factors
  bool single = false;  // of kernels/chain.h
};
void chain(loop::Program& program, const ChainRule& rule, std::vector<Decision>* decisions = nullptr);
void chain(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule

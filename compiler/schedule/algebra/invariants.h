// Scratch that is the same along a dim, and integers that are a formula of their place.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   for b, i: t[b, i] = f(i)          for i: t[0, i] = f(i)
//   ... t[b, e] ...              ->   ... t[0, e] ...
//
// What exporters spread over a batch and then compute with: positions, masks. Arena buffers whose every writer runs
// through the dim and makes nothing of it, from memory of constant sizes alone (it may run once where it ran not at
// all). What is then made of weights alone is for hoist_constants.
void shrink_invariants(loop::Program& program);

//   weight positions i64 [1, 512] = 0, 1, 2, ...
//   ... load positions[0, e] ...      ->   ... index e ...
//
// Loads of integer and bool constants of at most a few thousand elements, from the model or computed by nests of
// Program::prepack, which are run for it, become arithmetic on their indices where all elements are
// c0 + c1 * i1 + c2 * i2 + ...: comparisons of positions become masks of indices, checks of indices become known.
void make_affine(loop::Program& program);

// shrink_invariants, hoist_constants and make_affine, each of which finds more behind the one before.
void fold_constants(loop::Program& program);

}  // namespace stridec::schedule

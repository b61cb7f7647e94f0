// Shrinks scratch that is constant along a dim, and replaces constant integer tables that are affine in their
// index.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   for b, i: t[b, i] = f(i)          for i: t[0, i] = f(i)
//   ... t[b, e] ...              ->   ... t[0, e] ...
//
// Exporters broadcast positions and masks over a batch and then compute with them. Applies to arena buffers
// whose only writer iterates over the dim without using it and reads only memory of constant size. The writer
// may then run once where it would have run zero times. hoist_constants moves the result to compile time if
// it depends on weights alone.
void shrink_invariants(loop::Program& program);

//   weight positions i64 [1, 512] = 0, 1, 2, ...
//   ... load positions[0, e] ...      ->   ... index e ...
//
// Replaces loads of integer constants by arithmetic on their indices where all elements equal
// c0 + c1 * i1 + c2 * i2 + ..., and loads of bool constants by a comparison where they are causal or
// padding masks.
// The constants have at most a few thousand elements (masks: millions) and come from the model or from nests
// of Program::prepack, which are run to get them. Comparisons of positions become masks over indices, and
// index checks become known.
void make_affine(loop::Program& program);

// Runs shrink_invariants, hoist_constants and make_affine in this order; each exposes more for the next.
void fold_constants(loop::Program& program);

}  // namespace stridec::schedule

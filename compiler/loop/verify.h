// The verifier: rules that every program keeps. It runs after every pass in tests and after every stage in
// release.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::loop {

// Throws Error kInternal ("bad-loops") with the broken rule; the notes print the nest. Checked are
// - names and ids: buffers named once, index variables and values defined once, uses in scope of definitions;
// - dtypes of every statement by its operation's rule; arity of operations, indices, yields and results;
// - memory: only outputs, states, arena and local buffers are written, prepacked weights only by prepack
//   nests; no access is provably out of bounds;
// - sizes: symbols are declared, and bound by an input or an earlier step before a step uses them; extents
//   use only outer index variables;
// - steps: every nest is launched or prepacks, routines exist, copies agree in shape.
void verify(const Program& program);
void verify(const Program& program, const Nest& nest, bool prepack = false);

}  // namespace stridec::loop

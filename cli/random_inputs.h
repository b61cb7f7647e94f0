// Inputs for a program that nobody gave any: sizes that its guards admit, and integers that mean something where the
// program uses them.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/library.h"
#include "compiler/frontend/import.h"
#include "compiler/loop/interpret.h"

namespace stridec::cli {

// A size for every symbol that the inputs give: what `dims` fixes, otherwise small, different from symbol to symbol and
// from run to run, within the ranges of the program and of `dims`, and such that the guards hold. Where that is much
// work for the interpreter, the smallest. Throws Error with a guard's sentence where no such sizes are found.
Sizes choose_sizes(const loop::Program& program, const std::vector<frontend::DimRange>& dims, int run);

// Random data for input number `input`. Floats are normal. Integers that are used as indices reach over what they
// index, those that become a size stay within its limits, those that are only compared or turned into floats (masks)
// are 0 or 1, others 0 to 2. `program` has one nest an operator.
loop::HostTensor random_input(const loop::Program& program, size_t input, const Sizes& sizes, uint64_t seed);

}  // namespace stridec::cli

// Inputs for a program that nobody gave any: sizes that its guards admit, and values that it takes.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/library.h"
#include "compiler/frontend/import.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/value_range.h"

namespace stridec::cli {

// A size for every symbol that the inputs give: what `dims` fixes, otherwise small, different from symbol to symbol and
// from run to run, within the ranges of the program and of `dims`, and such that the guards hold. Where that is much
// work for the interpreter, the smallest. Throws Error with a guard's sentence where no such sizes are found.
Sizes choose_sizes(const loop::Program& program, const std::vector<frontend::DimRange>& dims, int run);

// Random data for input number `input`, within its range (loop::input_ranges).
loop::HostTensor random_input(const loop::Program& program, size_t input, const loop::ValueRange& range,
                              const Sizes& sizes, uint64_t seed);

}  // namespace stridec::cli

// Chooses inputs for a program when the user gives none: sizes that satisfy the guards, and valid values.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/given_inputs.h"
#include "cli/library.h"
#include "compiler/frontend/import.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/value_range.h"

namespace stridec::cli {

// A size for every symbol that the inputs or the context determine. `dims` fixes some; the others are small,
// differ from symbol to symbol and from run to run, are within the ranges of the program and of `dims`, and
// satisfy the guards. If that is too much work for the interpreter, they are the smallest sizes. Throws
// Error with a guard's sentence if no such sizes are found.
Sizes choose_sizes(const loop::Program& program, const std::vector<frontend::DimRange>& dims, int run);

// The sizes of the context: those of the inputs if they have them, otherwise those chosen.
Sizes context_sizes_of(const loop::Program& program, const std::vector<loop::HostTensor>& inputs,
                       const Sizes& chosen);

// Random data for input number `input`, within its range (loop::input_ranges). `attempt`: see DrawnRange.
loop::HostTensor random_input(const loop::Program& program, size_t input, const loop::ValueRange& range,
                              const Sizes& sizes, uint64_t seed, int attempt);

}  // namespace stridec::cli

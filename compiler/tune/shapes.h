// Selects the sizes at which kernels are measured. One schedule is chosen for all sizes that a program
// allows, so it is judged at several sizes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/tune/backend.h"

namespace stridec::tune {

using Sizes = std::map<std::string, int64_t>;  // of symbols, by name

// Throws Error kUsage for a size that is out of range or a name that is unknown.
void check_shapes(const loop::Program& program, const std::vector<Sizes>& given);

// One shape for each of `given`. Symbols that `given` does not name are as in the first of the following two
// shapes. If `given` is empty, these two are used:
//   one request    the leading dim of an input is its minimum, other symbols as in cost models
//                  (schedule::typical)
//   several        every symbol is the geometric mean of its range. The range counts up to 256 (a leading
//                  dim: 4096), or to 64 if it has no upper bound: many small requests, or several of one size
// The counter of a loop has its value in the last iteration at these sizes, if the trip count is known.
// Throws like check_shapes().
std::vector<Values> shapes_of(const loop::Program& program, const std::vector<Sizes>& given);

// Key of shapes that count as equal, for symbols in this order: each rounded up to a power of two, "1x128";
// "-" without symbols.
std::string bucket_of(const std::vector<sym::Expr>& symbols, const Values& values);

}  // namespace stridec::tune

// The sizes that kernels are measured at: schedules are chosen once for all sizes that a program allows, so they are
// judged at more than one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/tune/backend.h"

namespace stridec::tune {

using Sizes = std::map<std::string, int64_t>;  // of symbols, by name

// Throws Error kUsage for a size outside of its range or of an unknown name.
void check_shapes(const loop::Program& program, const std::vector<Sizes>& given);

// One for each of `given`, whose unnamed symbols are as in the first of these two, which are taken where nothing is given:
//   one request    the leading dim of an input at its least, other symbols as in cost models (schedule::typical)
//   several        every symbol at the geometric middle of its range, of which no more than 256 (a leading dim: 4096)
//                  counts, 64 without an upper bound: more requests that are smaller, or more of the same size
// A loop's counter is its last iteration at these sizes, where the trip count is known.
// Throws what check_shapes() does.
std::vector<Values> shapes_of(const loop::Program& program, const std::vector<Sizes>& given);

// Which shapes count as the same for symbols in this order: each rounded up to a power of two, "1x128"; "-" without symbols.
std::string bucket_of(const std::vector<sym::Expr>& symbols, const Values& values);

}  // namespace stridec::tune

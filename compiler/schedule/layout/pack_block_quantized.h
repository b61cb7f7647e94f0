// Weights that a contraction's factor is computed from, in panels of its columns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// What panels hold, as text: equal texts are equal panels. `slice`: the statements of a nest that compute an element,
// with the nest's variables replaced by expressions over those of `dims`.
std::string contents(const std::vector<loop::Dim>& dims, const std::vector<const loop::Stmt*>& slice,
                     const sym::Substitution& replaced, const loop::Nest& nest);

// Where the nest's schedule says `b compact P`: the parts of kernels/block_quantized.h as weights that nests of
// Program::prepack fill, read by the contraction instead of what they were made from. `made`: panels by contents, which
// contractions share.
void pack_block_quantized(loop::Program& program, loop::NestId nest,
                          std::map<std::string, loop::BufferId>& made);

}  // namespace stridec::schedule

// Packs block-quantised weights, from which a contraction's factor is computed, into panels of its columns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// The content of panels as text: equal texts mean equal panels. `slice`: the statements of a nest that
// compute an element, with the nest's variables replaced by expressions over those of `dims`.
std::string contents(const std::vector<loop::Dim>& dims, const std::vector<const loop::Stmt*>& slice,
                     const sym::Substitution& replaced, const loop::Nest& nest);

// For a nest whose schedule says `b compact P`: turns the parts of kernels/block_quantized.h into weights
// that nests of Program::prepack fill and the contraction reads in place of the originals. `made`: panels by
// content, which contractions share.
void pack_block_quantized(loop::Program& program, loop::NestId nest,
                          std::map<std::string, loop::BufferId>& made);

}  // namespace stridec::schedule

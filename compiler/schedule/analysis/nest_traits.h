// Properties of one nest that passes ask for: pointwise, contraction, cost of a point, name.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// No loops inside, one plain store.
bool is_pointwise(const loop::Nest& nest);
// A sum of products that a template will compute: one factor has a dim that the other lacks.
bool is_contraction(const loop::Nest& nest);
// Its index moves with every dim.
bool runs_through(const loop::Access& access, const std::vector<loop::Dim>& dims);
// Pointwise, and its result takes more memory than what it is computed from: casts and dequantised numbers. Readers
// had better load what is narrow and compute it again.
bool widens(const loop::Program& program, const loop::Nest& nest);
int scalar_cost(const loop::Block& block);
// "matmul+add+relu". Where that gets long what has more loops around it, which is most of the work, keeps its name: "iota+
// cast+...+matmul+add", "matmul+add+...".
std::string fused_name(const loop::Nest& producer, const loop::Nest& consumer);
// Adds the model's nodes that a nest computes as well, each once.
void join_nodes(loop::Nest& nest, const std::vector<std::string>& more);
size_t statement_count(const loop::Block& block);

// A nest longer than this compiles slowly and keeps nothing in registers.
inline constexpr size_t kMostStatements = 400;

}  // namespace stridec::schedule

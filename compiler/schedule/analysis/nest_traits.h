// Queries about one nest: whether it is pointwise or a contraction, its cost per point, its name.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Whether the nest has no inner loops and one plain store.
bool is_pointwise(const loop::Nest& nest);
// Whether the nest is a sum of products that a template will compute: one factor has a dim that the other
// lacks.
bool is_contraction(const loop::Nest& nest);
// Whether it is a contraction of one vector with each row: the gradient of a norm has such sums.
bool is_weighted_sum(const loop::Nest& nest);
// Whether the index of the access depends on every one of the dims.
bool runs_through(const loop::Access& access, const std::vector<loop::Dim>& dims);
// Whether the nest is pointwise and its result takes more memory than its inputs, as casts and dequantisation
// do. Its readers should load the narrow input and recompute.
bool widens(const loop::Program& program, const loop::Nest& nest);
int scalar_cost(const loop::Block& block);
bool is_zero(const loop::Scalar& scalar);
// The name of the fused nest, such as "matmul+add+relu". A long name is shortened, and the part of the nest
// with more loops, which does most of the work, keeps its name: "iota+cast+...+matmul+add", "matmul+add+...".
std::string fused_name(const loop::Nest& producer, const loop::Nest& consumer);
// Adds the model's nodes in `more` to those the nest computes, without duplicates.
void join_nodes(loop::Nest& nest, const std::vector<std::string>& more);
size_t statement_count(const loop::Block& block);

// A nest with more statements compiles slowly and keeps nothing in registers.
inline constexpr size_t kMostStatements = 400;

}  // namespace stridec::schedule

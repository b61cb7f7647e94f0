// Matches 3x3 convolutions and builds the nests of their Winograd form.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

struct Convolution {
  const loop::Reduce* reduce = nullptr;
  size_t at = 0;
  const loop::Load *data = nullptr, *weight = nullptr;
  loop::Dim y, x;                   // dims of the output
  sym::Expr r, s;                   // dims of the window
  std::vector<loop::Dim> own;       // parallel dims that index the data, including y and x
  std::vector<loop::Dim> columns;   // parallel dims that index the weight alone
  std::vector<loop::Dim> shared;    // parallel dims that index both (groups)
  std::vector<loop::Dim> channels;  // reduced dims other than r and s
};

// Matches a convolution with a 3x3 window and stride 1 by f32 weights; otherwise sets `reason`.
std::optional<Convolution> match_winograd(const loop::Program& program, const loop::Nest& nest,
                                          std::string* reason);

// A convolution and its nest, which `conv` points into.
struct Sibling {
  const loop::Nest& nest;
  const Convolution& conv;
};
// Whether both read the same windows of the same input with different weights, in nests whose dims have the
// same names.
bool are_siblings(const Convolution& a, const Convolution& b);
// The columns of all siblings, concatenated.
std::vector<loop::Dim> joined_columns(const std::vector<Sibling>& siblings);
std::string name_of(const std::vector<Sibling>& siblings);

// Returns, for tiles of m x m outputs: the input transform, the GEMM, and one output transform per sibling.
// Adds the nest that computes U to program.prepack.
std::vector<loop::Nest> winograd_nests(loop::Program& program, const std::vector<Sibling>& siblings, int m);

}  // namespace stridec::schedule

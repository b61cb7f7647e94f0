// What Winograd's convolutions are made of: which nests are convolutions of 3x3, and the nests that take their place.
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
  loop::Dim y, x;                   // of the output
  sym::Expr r, s;                   // of the window
  std::vector<loop::Dim> own;       // parallel dims that the data moves with, y and x among them
  std::vector<loop::Dim> columns;   // those of the weight alone
  std::vector<loop::Dim> shared;    // those of both (groups)
  std::vector<loop::Dim> channels;  // reduced, but r and s
};

// Nothing, and why, where the nest is no convolution of a window of 3x3 with stride 1 by f32 weights.
std::optional<Convolution> match_winograd(const loop::Program& program, const loop::Nest& nest,
                                          std::string* reason);

// A convolution and its nest, which it points into.
struct Sibling {
  const loop::Nest& nest;
  const Convolution& conv;
};
// The same windows of the same value by weights of their own, in nests that call their dims alike.
bool are_siblings(const Convolution& a, const Convolution& b);
// The columns of all siblings behind each other.
std::vector<loop::Dim> joined_columns(const std::vector<Sibling>& siblings);
std::string name_of(const std::vector<Sibling>& siblings);

// With tiles of m x m: the transform of what they read, the product, and each one's transform of its columns. What makes U
// joins program.prepack.
std::vector<loop::Nest> winograd_nests(loop::Program& program, const std::vector<Sibling>& siblings, int m);

}  // namespace stridec::schedule

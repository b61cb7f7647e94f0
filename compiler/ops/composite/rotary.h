// Rotary position embeddings: the elements of a head form pairs, and each pair is rotated by an angle that
// grows with the position. Su et al. 2021, arXiv:2104.09864.
#pragma once

#include <array>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct RotaryOptions {
  bool interleaved = false;  // the elements of a pair are adjacent; otherwise they are half a head apart
  double scale = 1;          // multiplies cosine and sine
};

// x [batch, heads, sequence, size]; position [batch or 1, sequence], i64; cosine and sine [positions, half].
// Rotates the first 2 * half elements of each head in f32 or wider.
Term rotate(Term x, Term position, Term cosine, Term sine, const RotaryOptions& options = {});
// The same, given the selected rows of the tables: [batch or 1, sequence, half].
Term rotate_by(Term x, Term cosine, Term sine, const RotaryOptions& options = {});

// Positions [1, length]: first, first + 1, ...; `first` is i64 [1]. A guard checks its size.
Term consecutive_positions(Term first, sym::Expr length);

// Three positions per token (time, height, width; position [3, batch, sequence]): each column of the tables
// uses one of them. `sections`: number of columns of each. They are consecutive, or with `alternating` in
// turn for as long as a section has columns left. Wang et al. 2024 (Qwen2-VL), arXiv:2409.12191.
struct Sections {
  std::array<int64_t, 3> sections = {};
  bool alternating = false;
};
// The rows of a table [positions, half] for those positions: [batch, sequence, half].
Term multimodal_rows(Term table, Term position, const Sections& sections);

}  // namespace stridec::ops

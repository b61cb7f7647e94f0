// Object detection.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// Greedy non-maximum suppression per batch row and class: visits boxes in order of score; keeps a box unless
// its intersection over union with one kept before exceeds `overlap`. boxes [batch, n, 4], scores [batch,
// classes, n]. The result is i64 [kept, 3]: batch row, class, box; the number kept is bound at run time.
struct SuppressionOptions {
  Term most;                      // kept per batch row and class; i64 scalar
  Term overlap;                   // f32 scalar
  std::optional<Term> threshold;  // boxes with a score up to it are dropped; f32 scalar
  bool centers = false;  // boxes are (x, y of the centre, width, height), else (y, x of two opposite corners)
};
Term non_max_suppression(Term boxes, Term scores, const SuppressionOptions& options);

}  // namespace stridec::ops

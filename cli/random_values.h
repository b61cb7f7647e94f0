// Generates random data for one input.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "compiler/base/dtype.h"
#include "compiler/sym/expr.h"

namespace stridec::cli {

// How often inputs are drawn until the program takes them: ranges of single values do not say what has to fit
// what. In the last kEqualDraws of them all elements of an input of integers are one number, the same in each
// input as far as the ranges allow: sizes that have to fit each other, such as Expand's, do where all are 1.
constexpr int kDraws = 32, kEqualDraws = 8;

// The values that may be drawn, at known sizes.
struct DrawnRange {
  std::optional<int64_t> least, most;
  bool image = false;  // the bytes of an encoded image
  int attempt = 0;     // below kDraws
};

// The bounds of a range at these sizes. A bound without a value at these sizes is treated as absent.
DrawnRange range_at(const std::optional<sym::Expr>& least, const std::optional<sym::Expr>& most, bool image,
                    const std::function<std::optional<int64_t>(sym::Expr)>& size);

// Integers are uniform in the range, or in [0, 2] if it has no bounds, and equal in the last attempts; bools
// have both values. Floats are uniform between two bounds, half-normal with one bound, and normal with none.
// An image is a small PPM with a random colour per pixel, if it fits.
void fill_random(DType dtype, const DrawnRange& range, uint64_t seed, int64_t count, uint8_t* bytes);

}  // namespace stridec::cli

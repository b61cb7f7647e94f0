// Random data for one input.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "compiler/base/dtype.h"
#include "compiler/sym/expr.h"

namespace stridec::cli {

// What may be drawn, at sizes that are known.
struct DrawnRange {
  std::optional<int64_t> least, most;
  bool image = false;  // the bytes of an encoded image
};

// The bounds of a range at these sizes; a bound that has no value there counts as none.
DrawnRange range_at(const std::optional<sym::Expr>& least, const std::optional<sym::Expr>& most, bool image,
                    const std::function<std::optional<int64_t>(sym::Expr)>& size);

// Integers are uniform in the range, [0, 2] where it has no bounds; bools both values. Floats are uniform
// between two bounds, half a normal distribution beyond one, and normal without. An image is a small one
// of one colour a pixel (PPM) where that fits.
void fill_random(DType dtype, const DrawnRange& range, uint64_t seed, int64_t count, uint8_t* bytes);

}  // namespace stridec::cli

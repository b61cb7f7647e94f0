// Draws numbers at and next to the ties of a float type: the midpoints of neighbouring numbers. There,
// rounding to a wider type first may give another result than rounding once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/extend/draws.h"
#include "compiler/extend/rule.h"

namespace stridec::extend {

struct FloatFormat {
  int bits = 0;   // of the significand, with the leading one
  int most = 0;   // the largest number is below 2^(most + 1)
  int least = 0;  // the smallest positive number is 2^least
};

const FloatFormat& format_of(DType dtype);  // of a float type

// The float types that a rule with casts names or that its variables may have. If a cast binds its type, all
// types that may be drawn for it. Empty for a rule without casts.
std::vector<FloatFormat> formats_of(const Rule& rule);

// These return nullopt if `dtype` holds no tie of the drawn format.
std::optional<int64_t> draw_integer_at_tie(Draws& draws, DType dtype,
                                           const std::vector<FloatFormat>& formats);
std::optional<double> draw_float_at_tie(Draws& draws, DType dtype, const std::vector<FloatFormat>& formats);

}  // namespace stridec::extend

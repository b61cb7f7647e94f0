// What the text of a rule says about where it may fail: numbers, sizes and float types, which are drawn more
// often than others.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/extend/draw_rounding.h"
#include "compiler/extend/rule.h"

namespace stridec::extend {

struct Landmarks {
  std::vector<FloatFormat> formats;  // to which the rule rounds
  std::vector<double> numbers;       // of its terms: at and next to these, comparisons change
  std::vector<int64_t> sizes;        // of its conditions, and their neighbours
};

Landmarks landmarks_of(const Rule& rule);

}  // namespace stridec::extend

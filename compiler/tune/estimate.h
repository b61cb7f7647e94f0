// A robust estimate of repeated timings.
#pragma once

#include <vector>

namespace stridec::tune {

// Median, and its standard error from the median deviation.
struct Estimate {
  double median = 0, error = 0;
};
Estimate estimate(std::vector<double> samples);

}  // namespace stridec::tune

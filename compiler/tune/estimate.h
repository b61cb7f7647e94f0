// A robust estimate of repeated timings.
#pragma once

#include <vector>

namespace stridec::tune {

// The median, and its standard error computed from the median absolute deviation.
struct Estimate {
  double median = 0, error = 0;
};
Estimate estimate(std::vector<double> samples);

}  // namespace stridec::tune

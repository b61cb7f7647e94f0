#include "compiler/tune/estimate.h"

#include <algorithm>
#include <cmath>

namespace stridec::tune {

Estimate estimate(std::vector<double> samples) {
  if (samples.empty()) return {};
  auto middle = [](std::vector<double>& values) {
    const size_t half = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
    double upper = values[half];
    if (values.size() % 2) return upper;
    return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) /
           2;
  };
  const double n = static_cast<double>(samples.size());
  const double median = middle(samples);
  for (double& sample : samples) sample = std::abs(sample - median);
  // For normal errors, the standard deviation is 1.48 median absolute deviations, and the standard error of a
  // median is 1.25 standard deviations / sqrt(n).
  return {median, 1.25 * 1.48 * middle(samples) / std::sqrt(n)};
}

}  // namespace stridec::tune

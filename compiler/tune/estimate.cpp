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
  // 1.48 deviations are a standard deviation, 1.25 of which over sqrt(n) is the error of a median (both for
  // normal errors).
  return {median, 1.25 * 1.48 * middle(samples) / std::sqrt(n)};
}

}  // namespace stridec::tune

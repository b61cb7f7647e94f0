#include "compiler/tune/forecast.h"

#include <algorithm>
#include <cmath>

namespace stridec::tune {
namespace {

// Standard deviations of the logarithm: before anything is known, and the least that is believed.
constexpr double kUnknown = 0.35, kLeast = 0.04;
constexpr double kPrior = 2;  // measurements that the unknown spread counts for

}  // namespace

void Forecast::learn(const std::string& family, double expected, double ratio) {
  if (expected > 0 && ratio > 0) errors_[family].push_back(std::log(ratio / expected));
}

Forecast::Range Forecast::range(const std::string& family, double expected) const {
  const auto found = errors_.find(family);
  const double n = found == errors_.end() ? 0 : static_cast<double>(found->second.size());
  double sum = 0;
  if (n > 0)
    for (const double error : found->second) sum += error;
  const double mean = sum / (n + kPrior);  // shrunk: no error is likeliest before anything is known
  double squares = kPrior * kUnknown * kUnknown;
  if (n > 0)
    for (const double error : found->second) squares += (error - mean) * (error - mean);
  const double spread = std::max(kLeast, std::sqrt(squares / (n + kPrior)));
  return {expected * std::exp(mean), expected * std::exp(mean - 2 * spread)};
}

}  // namespace stridec::tune

#include "compiler/tune/cost_model_calibration.h"

#include <algorithm>
#include <cmath>

namespace stridec::tune {
namespace {

// Standard deviations of the logarithm: without measurements, and the minimum.
constexpr double kUnknown = 0.35, kLeast = 0.04;
constexpr double kPrior = 2;    // weight of the prior, in measurements
constexpr double kEarlier = 8;  // maximum weight of all earlier measurements of a family

}  // namespace

Calibration::Calibration(const ModelErrors& known) : known_(known) {
  for (auto& [family, lesson] : known_) {
    const double share = std::min(1.0, kEarlier / std::max(lesson.count, 1.0));
    lesson = {lesson.count * share, lesson.sum * share, lesson.squares * share};
  }
}

void Calibration::learn(const std::string& family, double expected, double ratio) {
  if (expected > 0 && ratio > 0) learned_[family].add(std::log(ratio / expected));
}

Calibration::Range Calibration::range(const std::string& family, double expected) const {
  ModelError all;
  for (const ModelErrors* lessons : {&known_, &learned_})
    if (const auto found = lessons->find(family); found != lessons->end()) all.add(found->second);
  // Shrunk towards zero: without data the most likely error is zero.
  const double mean = all.sum / (all.count + kPrior);
  const double deviations = all.squares - 2 * mean * all.sum + all.count * mean * mean;
  const double spread = std::max(
      kLeast, std::sqrt((kPrior * kUnknown * kUnknown + std::max(deviations, 0.0)) / (all.count + kPrior)));
  return {expected * std::exp(mean), expected * std::exp(mean - 2 * spread)};
}

}  // namespace stridec::tune
